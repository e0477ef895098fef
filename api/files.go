package api

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"stepwell"
	"stepwell/api/v1"
)

// linkLife is how long a link to a file is good. Source: the interface.
const linkLife = time.Hour

// linkPlace binds what a link holds to its purpose.
const linkPlace = "file link"

var errLink = stepwell.Errorf(stepwell.KindNotFound, "not_found",
	"File not found: the link is wrong or older than an hour; GET /runs/<runId>/files gives a fresh one")

// fileLink is what a link to a file holds, sealed: nobody else can make one, and it says
// nothing about whose file it is.
type fileLink struct {
	Org     string `json:"o"`
	Run     string `json:"r"`
	Key     string `json:"k"`
	Expires int64  `json:"e"` // Unix seconds
}

// link gives the address of a file for linkLife.
func (a *API) link(base string, run *stepwell.Run, key string) (string, error) {
	text, err := json.Marshal(fileLink{run.OrgID, run.ID, key, time.Now().Add(linkLife).Unix()})
	if err != nil {
		return "", err
	}
	sealed, err := a.Links.Seal(text, linkPlace)
	return base + "/files/" + base64.RawURLEncoding.EncodeToString(sealed), err
}

// openLink reads a link; errLink when it is none of ours or has expired.
func (a *API) openLink(text string) (l fileLink, err error) {
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return l, errLink
	}
	plain, err := a.Links.Open(sealed, linkPlace)
	if err != nil || json.Unmarshal(plain, &l) != nil || time.Now().Unix() >= l.Expires {
		return l, errLink
	}
	return l, nil
}

// wireFiles maps the files of a run without their links.
func wireFiles(files []stepwell.File) []v1.FileArtifact {
	if len(files) == 0 {
		return nil
	}
	return each(files, func(f stepwell.File) v1.FileArtifact {
		return v1.FileArtifact{FileKey: f.Key, Filename: f.Name, ContentType: f.ContentType, Size: f.Size}
	})
}

// linkedFiles maps the files of a run with fresh links.
func (a *API) linkedFiles(run *stepwell.Run, base string) (out []v1.FileArtifact, err error) {
	out = wireFiles(run.Files)
	for i := range out {
		if out[i].DownloadURL, err = a.link(base, run, out[i].FileKey); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (a *API) getFiles(_ context.Context, req *request, _ none) (*response, error) {
	files, err := a.linkedFiles(req.run, req.base)
	if files == nil {
		files = []v1.FileArtifact{}
	}
	return &response{body: v1.Files{FileArtifacts: files}}, err
}

// download sends a file to whoever has a link to it. It is never shown in the browser's
// own window: its content is an upstream's.
func (a *API) download(ctx context.Context, req *request, _ none) (*response, error) {
	l, err := a.openLink(req.vars["link"])
	if err != nil {
		return nil, err
	}
	f, content, err := a.Runs.OpenFile(ctx, l.Org, l.Run, l.Key)
	if stepwell.KindOf(err) == stepwell.KindNotFound {
		return nil, errLink
	}
	if err != nil {
		return nil, err
	}
	header := http.Header{
		"Content-Type":            {strings.Map(printable, f.ContentType)},
		"Content-Length":          {strconv.FormatInt(f.Size, 10)},
		"Content-Disposition":     {mime.FormatMediaType("attachment", map[string]string{"filename": f.Name})},
		"Content-Security-Policy": {"sandbox"},
	}
	return &response{header: header, stream: func(_ context.Context, w io.Writer) error {
		defer content.Close()
		_, err := io.Copy(w, content)
		return err
	}}, nil
}

// printable drops what no header may hold.
func printable(c rune) rune {
	if c < ' ' || c > '~' {
		return -1
	}
	return c
}
