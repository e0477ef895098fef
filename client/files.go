package client

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"stepwell/api/v1"
)

// Files gives the files of a run with fresh links.
func (c *Client) Files(ctx context.Context, id string) ([]v1.FileArtifact, error) {
	files, err := get[v1.Files](ctx, c, runPath(id)+"/files", nil)
	if err != nil {
		return nil, err
	}
	return files.FileArtifacts, nil
}

// Download writes the content of a file to w, by the link that Files gave. The key is not
// sent: the link needs none. An error after some bytes were written, or when there are not
// as many as the file has, means that they are not the whole.
func (c *Client) Download(ctx context.Context, f v1.FileArtifact, w io.Writer) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.DownloadURL, nil)
	if err != nil {
		return fmt.Errorf("download %s: its link is not valid", f.FileKey)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("download %s: %w", f.FileKey, err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return errorOf(res)
	}
	n, err := io.Copy(w, res.Body)
	if err == nil && n != f.Size {
		err = fmt.Errorf("it ended after %d of %d bytes", n, f.Size)
	}
	if err != nil {
		return fmt.Errorf("download %s: %w", f.FileKey, err)
	}
	return nil
}
