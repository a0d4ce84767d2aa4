package role

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// ErrFileChanged says that a file was not replaced because it changed since the caller read it. Read it again.
var ErrFileChanged = errors.New("the file has changed since it was read")

// ReadFile reads a file that the role is granted to replace ("replace-file"). Pass the digest to ReplaceFile to replace exactly this content. By
// errors.Is an error is fs.ErrNotExist if the file does not exist, or fs.ErrPermission if it is not granted. Errors have a gRPC status.
func (h *Host) ReadFile(ctx context.Context, path string) (content []byte, digest string, err error) {
	response, err := h.client.ReadFile(ctx, &hostv1.ReadFileRequest{Path: path})
	if err != nil {
		return nil, "", hostError("read "+path, err)
	}
	return response.GetContent(), response.GetDigest(), nil
}

// ReplaceFile replaces the content of a file that the role is granted to replace, and keeps its owner and mode. It expects the content with the given
// digest; empty: the file must not exist. It returns the new digest. Readers see the old or the new content, never a part of it, unless the file is a
// mount point, as in most containers: then it is written in place, and inPlace is true. By errors.Is an error is ErrFileChanged if the file has
// another content, or fs.ErrPermission if it is not granted. Errors have a gRPC status.
func (h *Host) ReplaceFile(ctx context.Context, path, expectedDigest string, content []byte) (digest string, inPlace bool, err error) {
	response, err := h.client.ReplaceFile(ctx, &hostv1.ReplaceFileRequest{Path: path, ExpectedDigest: expectedDigest, Content: content})
	if err != nil {
		return "", false, hostError("replace "+path, err)
	}
	return response.GetDigest(), response.GetInPlace(), nil
}

// hostError wraps an error of a host call.
func hostError(doing string, err error) error {
	kind := error(nil)
	switch status.Code(err) {
	case codes.NotFound:
		kind = fs.ErrNotExist
	case codes.PermissionDenied:
		kind = fs.ErrPermission
	case codes.Aborted:
		kind = ErrFileChanged
	case codes.Canceled:
		kind = context.Canceled
	case codes.DeadlineExceeded:
		kind = context.DeadlineExceeded
	default:
		return fmt.Errorf("host: %s: %w", doing, err)
	}
	return fmt.Errorf("host: %s: %w (%w)", doing, kind, err)
}
