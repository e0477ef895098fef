package app_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	v1 "stepwell/api/v1"
)

const filesTool = `{"id":"files","steps":[
	{"id":"pictures","dataSelector":"() => [1, 2]","config":{"url":"%[1]s/picture-<<currentItem>>.bin"}},
	{"id":"pages","outputFile":true,"config":{"url":"%[1]s/pages","queryParams":{"cursor":"<<cursor>>"},"pagination":{"type":"cursorBased","cursorPath":"next"}}},
	{"id":"made","config":{"type":"transform","transformCode":"(s) => ({n: 1, __files__: [{filename: 'a/b.txt', content: 'grüße'}, {filename: 'c.bin', contentType: 'application/x-c', content: 'AP8=', encoding: 'base64'}]})"}}],
	"outputTransform":"(s) => ({made: s.made.data, pages: s.pages.data, __files__: [{filename: 'out.json', content: '{}'}]})"}`

// TestFiles keeps binary answers, pages and made files, and gives them back byte for byte.
func TestFiles(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	big := make([]byte, 5<<20)
	random := rand.NewChaCha8([32]byte{1})
	if _, err := random.Read(big); err != nil {
		t.Fatal(err)
	}
	up := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/picture-1.bin":
			w.Header().Set("Content-Type", "image/x-test")
			_, _ = w.Write(big) // the test sees what is missing
		case r.URL.Path == "/picture-2.bin":
			w.Header().Set("Content-Disposition", `attachment; filename="two.pdf"`)
			fmt.Fprint(w, "%PDF-1")
		case r.URL.Query().Get("cursor") == "":
			fmt.Fprint(w, `{"data":[1],"next":"b"}`)
		default:
			fmt.Fprint(w, `{"data":[2]}`)
		}
	})
	tool := n.tool(t, fmt.Sprintf(filesTool, up.URL))
	run := n.run(t, tool, v1.RunRequest{RunID: "a"})
	if run.Status != "success" {
		t.Fatal(run.Error)
	}
	want := []struct{ key, name, contentType, content string }{
		{"pictures.0.1.0", "picture-1.bin", "image/x-test", string(big)},
		{"pictures.1.1.0", "two.pdf", "application/pdf", "%PDF-1"},
		{"pages.0.1.0", "pages", "text/plain; charset=utf-8", `{"data":[1],"next":"b"}`},
		{"pages.0.2.0", "pages", "text/plain; charset=utf-8", `{"data":[2]}`},
		{"made.0.1.0", "b.txt", "text/plain; charset=utf-8", "grüße"},
		{"made.0.1.1", "c.bin", "application/x-c", "\x00\xff"},
		{"output.0", "out.json", "text/plain; charset=utf-8", "{}"},
	}
	check := func(files []v1.FileArtifact) {
		t.Helper()
		if len(files) != len(want) {
			t.Fatalf("%d files: %+v", len(files), files)
		}
		for i, w := range want {
			f := files[i]
			if f.FileKey != w.key || f.Filename != w.name || f.ContentType != w.contentType || f.Size != int64(len(w.content)) {
				t.Errorf("file %d is %+v, want %s %s %s", i, f, w.key, w.name, w.contentType)
			}
			res, err := http.Get(f.DownloadURL) //nolint:noctx // without a key: the link is enough
			if err != nil {
				t.Fatal(err)
			}
			if got := readAll(t, res); res.StatusCode != 200 || !bytes.Equal([]byte(got), []byte(w.content)) {
				t.Errorf("file %s: status %d, %d bytes", w.key, res.StatusCode, len(got))
			}
		}
	}
	check(run.FileArtifacts)
	files, err := n.api.Files(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	check(files)
	const description = `{"fileKey":"pages.0.1.0","filename":"pages","contentType":"text/plain; charset=utf-8","size":23}`
	if data := string(run.Data); !strings.HasPrefix(data, `{"made":{"n":1},"pages":[`+description) || strings.Contains(data, "__files__") {
		t.Errorf("data %s", data)
	}
	// A rerun takes the files of the steps that it reuses over.
	again := n.rerun(t, "a", v1.RerunRequest{FromStep: "made"})
	if len(up.of("")) != 4 {
		t.Errorf("%d requests", len(up.of("")))
	}
	check(again.FileArtifacts)
}

// TestFilesRefused has code make files that are none.
func TestFilesRefused(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	for files, want := range map[string]string{
		`'x'`:                           "must be an array",
		`[{filename: 'a'}]`:             "file 1 of '__files__' needs",
		`[{filename: 'a', content: 1}]`: "must be an array of",
		`[{filename: 'a', content: '!', encoding: 'base64'}]`: "is not base64",
		`[{filename: 'a', content: '', encoding: 'utf16'}]`:   "must be utf8 or base64",
	} {
		for _, tool := range []map[string]any{
			{"steps": []any{map[string]any{"id": "t", "config": map[string]any{"type": "transform", "transformCode": "() => ({__files__: " + files + "})"}}}},
			{"outputTransform": "() => ({__files__: " + files + "})"},
		} {
			text, err := json.Marshal(tool)
			if err != nil {
				t.Fatal(err)
			}
			run := n.run(t, n.tool(t, string(text)), v1.RunRequest{})
			if run.Status != "failed" || !strings.Contains(run.Error, want) || len(run.FileArtifacts) > 0 {
				t.Errorf("%s: %s %q, want %q", files, run.Status, run.Error, want)
			}
		}
	}
}
