package activities

import (
	"encoding/json"

	"stepwell"
	"stepwell/engine"
)

// keepFile makes a page of an answer that is kept as a file: its data describes the
// file. The descriptions of a pull's files are merged to one array.
func (u *unit) keepFile(p *stepwell.Page, f *stepwell.File) {
	f.Key = engine.FileKey(u.def.ID, u.key.Item, u.key.Page, 0)
	p.Files = []stepwell.File{*f}
	p.Body = engine.DescribeFile(f)
	if u.def.Paginated() {
		p.Body = append(append(json.RawMessage{'['}, p.Body...), ']')
	}
}

// transformed makes the page of a transform: its value, and the files that it made.
func (u *unit) transformed(out engine.TransformResult) (*stepwell.Page, error) {
	files, err := u.step.OutputFiles(out.Files)
	for i := range files {
		files[i].Key = engine.FileKey(u.def.ID, u.key.Item, u.key.Page, i)
	}
	return &stepwell.Page{Body: out.Data, Done: true, Files: files}, err
}
