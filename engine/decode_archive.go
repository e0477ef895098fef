package engine

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
)

const (
	maxArchiveDepth   = 3      // archives in archives
	maxArchiveEntries = 10_000 // files of one archive
)

var (
	errNotGzip    = plainError("not valid gzip: it is damaged or cut off")
	errNotZip     = plainError("not a valid zip archive: it is damaged or cut off")
	errTooNested  = plainError("an archive in an archive too often")
	errTooMany    = plainError(fmt.Sprintf("an archive of more than %d files", maxArchiveEntries))
	errSameName   = plainError("an archive with two files of one name")
	errNoEntries  = plainError("an archive without a file")
	errEncryption = plainError("an encrypted archive, which is not supported")
)

// decodeGzip unpacks a body and decodes what is in it.
func decodeGzip(body []byte, b *budget) (json.RawMessage, error) {
	r, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, errNotGzip
	}
	name := r.Name
	return b.unpack(func() (io.ReadCloser, error) {
		return r, r.Reset(bytes.NewReader(body))
	}, name, errNotGzip)
}

// decodeZip unpacks an archive: of one file it is what that file holds, of several an
// object of these by name.
func decodeZip(body []byte, b *budget) (json.RawMessage, error) {
	r, err := zip.NewReader(bytes.NewReader(body), int64(len(body)))
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) { // names are keys here, never paths
		return nil, errNotZip
	}
	var files []*zip.File
	names := map[string]bool{}
	for _, f := range r.File {
		if f.FileInfo().IsDir() {
			continue
		}
		switch {
		case len(files) == maxArchiveEntries:
			return nil, errTooMany
		case names[f.Name]:
			return nil, errSameName
		case f.Flags&1 != 0:
			return nil, errEncryption
		}
		names[f.Name] = true
		files = append(files, f)
	}
	switch len(files) {
	case 0:
		return nil, errNoEntries
	case 1:
		return b.entry(files[0])
	}
	var out jsonText
	separator := "{"
	for _, f := range files {
		data, err := b.entry(f)
		if err != nil {
			return nil, err
		}
		out.raw(separator)
		separator = ","
		out.string(f.Name)
		out.raw(":")
		out.raw(string(data))
		if out.full {
			return nil, errTooLarge
		}
	}
	out.raw("}")
	return out.done()
}

// entry decodes one file of an archive.
func (b *budget) entry(f *zip.File) (json.RawMessage, error) {
	return b.unpack(f.Open, f.Name, errNotZip)
}

// unpack reads what is packed, within the budget, and decodes it by its name, else by
// its content. It is unpacked twice, to see its size and to keep it: so a bomb takes no
// memory, and everything else no more than it has bytes.
func (b *budget) unpack(open func() (io.ReadCloser, error), name string, damaged error) (json.RawMessage, error) {
	if b.depth >= maxArchiveDepth {
		return nil, errTooNested
	}
	var size int64
	err := reading(open, func(r io.Reader) (err error) {
		size, err = io.Copy(io.Discard, io.LimitReader(r, b.left+1))
		return err
	})
	if err != nil {
		return nil, damaged
	}
	if b.left -= size; b.left < 0 {
		return nil, errTooLarge
	}
	content := make([]byte, size)
	if err := reading(open, func(r io.Reader) error { _, err := io.ReadFull(r, content); return err }); err != nil {
		return nil, damaged
	}
	b.depth++
	defer func() { b.depth-- }()
	data, err := decodeAs(mediaByName[strings.ToLower(path.Ext(name))], "", content, b)
	if err != nil && !errors.Is(err, ErrFile) {
		return nil, plainError("one whose content cannot be read: " + err.Error())
	}
	return data, err
}

// reading opens something for do and closes it.
func reading(open func() (io.ReadCloser, error), do func(io.Reader) error) error {
	r, err := open()
	if err != nil {
		return err
	}
	return errors.Join(do(r), r.Close())
}

// mediaByName is what the end of a file's name says about its content; other names
// leave it to the content.
var mediaByName = map[string]string{
	".json": typeJSON, ".ndjson": "application/x-ndjson", ".jsonl": "application/x-ndjson", ".csv": "text/csv",
	".tsv": "text/tab-separated-values", ".xml": "application/xml", ".yaml": "application/yaml", ".yml": "application/yaml",
	".html": "text/html", ".htm": "text/html", ".gz": "application/gzip", ".zip": "application/zip",
}
