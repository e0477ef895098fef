package engine

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strings"
	"unicode"

	"stepwell"
)

// maxFilename bounds the name of a file, in characters.
const maxFilename = 200

// FileKey names a file within its run: the step, the item (from 0), the page (from 1)
// and the number of the file among those of the page (from 0).
func FileKey(step string, item, page, n int) string {
	return fmt.Sprintf("%s.%d.%d.%d", step, item, page, n)
}

// OutputFileKey names a file that an outputTransform made.
func OutputFileKey(n int) string { return fmt.Sprintf("output.%d", n) }

// DescribeFile is what stands in the data in place of a file.
func DescribeFile(f *stepwell.File) json.RawMessage {
	out := append([]byte(`{"fileKey":`), quote(f.Key)...)
	out = append(append(out, `,"filename":`...), quote(f.Name)...)
	out = append(append(out, `,"contentType":`...), quote(f.ContentType)...)
	out = append(append(out, `,"size":`...), itoa(int64(len(f.Content)))...)
	return append(out, '}')
}

// fileOf makes a file of an answer, still without a key: named by its
// Content-Disposition, else by its address.
func (s *Step) fileOf(a *Answer) *stepwell.File {
	_, params, err := mime.ParseMediaType(a.Header.Get("Content-Disposition"))
	name := ""
	if err == nil {
		name = params["filename"]
	}
	if u, err := url.Parse(a.URL); name == "" && err == nil && !strings.HasSuffix(u.Path, "/") {
		name = path.Base(u.Path)
		if a.Mask != nil {
			name = a.Mask(name)
		}
	}
	return &stepwell.File{Name: cleanFilename(name, s.def.ID), ContentType: contentTypeOf(a.Header.Get("Content-Type"), a.Body), Content: a.Body}
}

// cleanFilename keeps the last part of a path, without what no file system takes.
func cleanFilename(name, absent string) string {
	name = strings.ToValidUTF8(name, "")
	name = name[strings.LastIndexAny(name, `/\`)+1:]
	name = strings.Map(func(c rune) rune {
		if unicode.IsControl(c) || strings.ContainsRune(`<>:"|?*`, c) || unicode.Is(unicode.Cf, c) {
			return -1
		}
		return c
	}, name)
	name = strings.Trim(name, " .")
	if runes := []rune(name); len(runes) > maxFilename {
		name = string(runes[len(runes)-maxFilename:]) // its end says what kind of file it is
	}
	if name == "" {
		return absent
	}
	return name
}

func contentTypeOf(given string, content []byte) string {
	if media, _, err := mime.ParseMediaType(given); err == nil && strings.Contains(media, "/") {
		return given
	}
	return http.DetectContentType(content)
}

// OutputFiles reads the value of `__files__` that code gave: an array of {filename,
// contentType?, content, encoding?}. The files have no keys yet. Another shape is a
// *StepError.
func (s *Step) OutputFiles(raw json.RawMessage) ([]stepwell.File, error) {
	if isNull(raw) {
		return nil, nil
	}
	var given []struct {
		Filename    *string
		ContentType string
		Content     *string
		Encoding    string
	}
	if err := json.Unmarshal(raw, &given); err != nil {
		return nil, s.Errorf("%s: '__files__' must be an array of {filename, contentType?, content, encoding?}, all texts", s.run.field)
	}
	files := make([]stepwell.File, len(given))
	for i, g := range given {
		if g.Filename == nil || *g.Filename == "" || g.Content == nil {
			return nil, s.Errorf("%s: file %d of '__files__' needs a 'filename' and a 'content'", s.run.field, i+1)
		}
		content := []byte(*g.Content)
		switch g.Encoding {
		case "", "utf8":
		case "base64":
			var err error
			if content, err = base64.StdEncoding.DecodeString(*g.Content); err != nil {
				return nil, s.Errorf("%s: the 'content' of file %d of '__files__' is not base64", s.run.field, i+1)
			}
		default:
			return nil, s.Errorf("%s: the 'encoding' of file %d of '__files__' must be utf8 or base64", s.run.field, i+1)
		}
		files[i] = stepwell.File{Name: cleanFilename(*g.Filename, "file"), ContentType: contentTypeOf(g.ContentType, content), Content: content}
	}
	return files, nil
}
