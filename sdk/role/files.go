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

// ErrFileChanged says that a file was not replaced because it is not what the caller read: read it again.
var ErrFileChanged = errors.New("the file has changed since it was read")

// ReadFile reads a file that the role is granted to replace ("replace-file"). The digest is what ReplaceFile takes to replace exactly this
// content. An error is fs.ErrNotExist if there is no such file and fs.ErrPermission if it is not granted, by errors.Is; and it has a gRPC
// status.
func (h *Host) ReadFile(ctx context.Context, path string) (content []byte, digest string, err error) {
	response, err := h.client.ReadFile(ctx, &hostv1.ReadFileRequest{Path: path})
	if err != nil {
		return nil, "", hostError("read "+path, err)
	}
	return response.GetContent(), response.GetDigest(), nil
}

// ReplaceFile replaces the content of a file that the role is granted to replace, and keeps its owner and mode. The expected digest is of the content
// that is to be replaced; empty: the file must not exist. It returns the digest of the new content. Readers see the old content or the new one, never
// a part, unless something is mounted on the file, as in most containers: then it was written in place, and inPlace says so. An error is
// ErrFileChanged if the file holds something else and fs.ErrPermission if it is not granted, by errors.Is; and it has a gRPC status.
func (h *Host) ReplaceFile(ctx context.Context, path, expectedDigest string, content []byte) (digest string, inPlace bool, err error) {
	response, err := h.client.ReplaceFile(ctx, &hostv1.ReplaceFileRequest{Path: path, ExpectedDigest: expectedDigest, Content: content})
	if err != nil {
		return "", false, hostError("replace "+path, err)
	}
	return response.GetDigest(), response.GetInPlace(), nil
}

// hostError says which power of the host was not to be had.
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
