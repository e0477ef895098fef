package blob

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"slices"
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
	if s.s3 != nil { // the driver says the same of a bucket that is not there
		code, _ := codeOf(err)
		return code == "NoSuchKey"
	}
	if gcerrors.Code(err) != gcerrors.NotFound {
		return false
	}
	_, err = os.Stat(s.dir)
	return err == nil // else what it was mounted from is away
}

// fullCodes are the codes by which S3 and servers like it say that there is no room.
var fullCodes = []string{"QuotaExceeded", "InsufficientCapacity", "InsufficientStorage", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded"}

// complaint says what is wrong with the store, in the middle of a sentence. It names no
// path, address or key.
func complaint(err error) string {
	var network net.Error
	code, status := codeOf(err)
	switch {
	case code == "NoSuchBucket":
		return "has no such bucket"
	case status == http.StatusInsufficientStorage, slices.Contains(fullCodes, code):
		return "is full"
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		return "is overloaded"
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return "refuses access"
	case status >= http.StatusInternalServerError:
		return "fails"
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
