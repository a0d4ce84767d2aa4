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
	for {
		response, err := h.client.ReadFile(ctx, &hostv1.ReadFileRequest{Path: path, Offset: uint64(len(content))})
		if err != nil {
			return nil, "", hostError("read "+path, err)
		}
		if digest != "" && response.GetDigest() != digest {
			content, digest = nil, "" // changed between two parts
			continue
		}
		content, digest = append(content, response.GetContent()...), response.GetDigest()
		if uint64(len(content)) >= response.GetSize() || len(response.GetContent()) == 0 {
			return content, digest, nil
		}
	}
}

// ReplaceFile replaces the content of a file that the role is granted to replace, and keeps its owner, mode and attributes. It expects the content with the given
// digest; empty: the file must not exist. It returns the new digest. Readers see the old or the new content, never a part of it, unless the file is a
// mount point, as in most containers: then it is written in place, and inPlace is true. By errors.Is an error is ErrFileChanged if the file has
// another content, or fs.ErrPermission if it is not granted. Errors have a gRPC status. A file has 16 MiB at most; one of more than 1 MiB differs from what was there in no more
// than 1 MiB, at one place.
func (h *Host) ReplaceFile(ctx context.Context, path, expectedDigest string, content []byte) (digest string, inPlace bool, err error) {
	request := &hostv1.ReplaceFileRequest{Path: path, ExpectedDigest: expectedDigest, Content: content}
	if len(content) > maxContent {
		present, digest, err := h.ReadFile(ctx, path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", false, err
		}
		if digest != expectedDigest {
			return "", false, fmt.Errorf("host: replace %s: %w", path, ErrFileChanged)
		}
		request.Part, request.Content = difference(present, content)
	}
	response, err := h.client.ReplaceFile(ctx, request)
	if err != nil {
		return "", false, hostError("replace "+path, err)
	}
	return response.GetDigest(), response.GetInPlace(), nil
}

// AwaitFile returns nil when a file that the role is granted to replace has another content than that with the digest; an empty digest: when the file is there. By
// errors.Is an error is fs.ErrPermission if the file is not granted, or the context's. Errors have a gRPC status: Unimplemented from a node that cannot tell.
func (h *Host) AwaitFile(ctx context.Context, path, digest string) error {
	if _, err := h.client.AwaitFile(ctx, &hostv1.AwaitFileRequest{Path: path, Digest: digest}); err != nil {
		return hostError("watch "+path, err)
	}
	return nil
}

// maxContent is the largest part of a file in one call.
const maxContent = 1 << 20

// difference returns the part of a file that another content differs in, and what is there instead.
func difference(present, content []byte) (*hostv1.FilePart, []byte) {
	most := min(len(present), len(content))
	first := 0
	for first < most && present[first] == content[first] {
		first++
	}
	last := 0
	for last < most-first && present[len(present)-1-last] == content[len(content)-1-last] {
		last++
	}
	return &hostv1.FilePart{Offset: uint64(first), Length: uint64(len(present) - first - last)}, content[first : len(content)-last]
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
		return fmt.Errorf("host: %s: %w", doing, refusal{err})
	}
	return fmt.Errorf("host: %s: %w (%w)", doing, kind, refusal{err})
}

// refusal is an error of a host call in the node's words alone: roles show it to people. It keeps its gRPC status.
type refusal struct{ error }

func (r refusal) Error() string { return status.Convert(r.error).Message() }
func (r refusal) Unwrap() error { return r.error }
