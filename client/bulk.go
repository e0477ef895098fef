package client

import (
	"context"
	"time"

	"stepwell/api/v1"
)

// CancelMany cancels running runs in the background. With an ID a repeat does nothing twice.
func (c *Client) CancelMany(ctx context.Context, r v1.BulkRequest) (*v1.BulkOperation, error) {
	return c.bulk(ctx, "/runs/cancel", r)
}

// RerunMany reruns runs that failed or were aborted, in the background.
func (c *Client) RerunMany(ctx context.Context, r v1.BulkRequest) (*v1.BulkOperation, error) {
	return c.bulk(ctx, "/runs/rerun", r)
}

func (c *Client) bulk(ctx context.Context, path string, r v1.BulkRequest) (*v1.BulkOperation, error) {
	answer, err := change[v1.Bulk](ctx, c, call{method: "POST", path: path, body: r})
	if err != nil {
		return nil, err
	}
	return &answer.Data, nil
}

// BulkOperation gives the progress of a bulk operation.
func (c *Client) BulkOperation(ctx context.Context, id string) (*v1.BulkOperation, error) {
	answer, err := get[v1.Bulk](ctx, c, "/runs/bulk/"+escape(id), nil)
	if err != nil {
		return nil, err
	}
	return &answer.Data, nil
}

// WaitBulk asks for a bulk operation until it has finished.
func (c *Client) WaitBulk(ctx context.Context, id string) (*v1.BulkOperation, error) {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, maxPoll) {
		op, err := c.BulkOperation(ctx, id)
		if err != nil || op.Status != "running" {
			return op, err
		}
		if err := sleep(ctx, pause); err != nil {
			return nil, err
		}
	}
}
