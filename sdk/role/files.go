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
		return nil, "", fileError("read", path, err)
	}
	return response.GetContent(), response.GetDigest(), nil
}

// ReplaceFile replaces the content of a file that the role is granted to replace, atomically, and keeps its owner and mode. The expected
// digest is of the content that is to be replaced; empty: the file must not exist. It returns the digest of the new content. An error is
// ErrFileChanged if the file holds something else and fs.ErrPermission if it is not granted, by errors.Is; and it has a gRPC status.
func (h *Host) ReplaceFile(ctx context.Context, path, expectedDigest string, content []byte) (digest string, err error) {
	response, err := h.client.ReplaceFile(ctx, &hostv1.ReplaceFileRequest{Path: path, ExpectedDigest: expectedDigest, Content: content})
	if err != nil {
		return "", fileError("replace", path, err)
	}
	return response.GetDigest(), nil
}

func fileError(operation, path string, err error) error {
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
		return fmt.Errorf("host: %s %s: %w", operation, path, err)
	}
	return fmt.Errorf("host: %s %s: %w (%w)", operation, path, kind, err)
}
