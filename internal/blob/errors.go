package blob

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"

	"gocloud.dev/gcerrors"

	"stepwell"
)

// failure gives a driver's error its kind: KindLost when the blob is not there, else
// KindUnavailable with CodeBlobStore. A store that refuses or is full counts as away, too:
// its operator can change that, and then the same call works. A cancelled context is
// neither.
func (s *Store) failure(op, key string, err error) error {
	if err == nil {
		return nil
	}
	cause := fmt.Errorf("blob: %s %s: %w", op, key, err)
	switch {
	case errors.Is(err, context.Canceled):
		return cause
	case s.isMissing(err):
		return &stepwell.Error{Kind: stepwell.KindLost, Code: "body_missing",
			Message: "A stored body is missing from the blob store: restore it from a backup, or run the tool again", Cause: cause}
	}
	return &stepwell.Error{Kind: stepwell.KindUnavailable, Code: stepwell.CodeBlobStore,
		Message: "The blob store " + complaint(err) + ": try again when it works", Cause: cause}
}

// isMissing reports whether an error says that the blob, and not the whole store, is not there.
func (s *Store) isMissing(err error) bool {
	if gcerrors.Code(err) != gcerrors.NotFound {
		return false
	}
	if s.dir == "" {
		return true
	}
	_, err = os.Stat(s.dir)
	return err == nil // else what it was mounted from is away
}

// complaint says what is wrong with the store, in the middle of a sentence. It names no
// path, address or key.
func complaint(err error) string {
	var network net.Error
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "is full"
	case errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission), gcerrors.Code(err) == gcerrors.PermissionDenied:
		return "refuses access"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return "does not answer"
	case errors.As(err, &network):
		return "cannot be reached"
	}
	return "fails"
}
