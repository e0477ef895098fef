package api

import (
	"strings"

	"stepwell"
	"stepwell/api/v1"
)

// Callbacks makes the bodies of callbacks: runs as single reads show them.
type Callbacks struct {
	api  *API
	base string
}

// NewCallbacks makes one. base is the public address of the API with the /v1, for links;
// when it is empty they are paths.
func NewCallbacks(links Links, base, notice string) *Callbacks {
	if base = strings.TrimSuffix(base, "/"); base == "" {
		base = prefix
	}
	return &Callbacks{api: &API{Config: Config{Links: links, Notice: notice, PublicURL: base}}, base: base}
}

// Body makes the body of an ended run's callback. run.Data is in it, so it must be what
// may stand inline. Inputs and a tool over stepwell.MaxInlineData are left out, so that a
// body has at most some hundreds of KiB.
func (c *Callbacks) Body(run *stepwell.Run) ([]byte, error) {
	whole := c.api.wireRun(run, c.base)
	var err error
	if whole.FileArtifacts, err = c.api.linkedFiles(run, c.base); err != nil {
		return nil, err
	}
	if len(whole.ToolPayload) > stepwell.MaxInlineData {
		whole.ToolPayload = nil
	}
	if run.Tool != nil && run.Options.EndUserID == "" { // an end user, who may have given the address, does not read tools
		tool := wireShownTool(run.Tool)
		if text, err := encode(tool); err != nil {
			return nil, err
		} else if len(text) <= stepwell.MaxInlineData {
			whole.Tool = tool
		}
	}
	body, err := encode(v1.Callback{Run: whole, Success: run.Status == stepwell.RunSuccess})
	if err != nil || run.Data == nil {
		return body, err
	}
	body = append(openEnd(body), `,"data":`...)
	body = append(body, run.Data...)
	return append(body, "}\n"...), nil
}
