package nodeapi

import (
	"context"
	"errors"
	"io"
	"runtime"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/plugin/store"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

const (
	// maxPart is how much of an executable one message may hold.
	maxPart = 1 << 20
	// maxExecutable is how large an executable may be: several times the largest that is known, Kubernetes in one of 140 MB.
	maxExecutable = 1 << 30
)

// ImportPlugin implements the RPC.
func (s *service) ImportPlugin(stream grpc.ClientStreamingServer[nodev1.ImportPluginRequest, nodev1.ImportPluginResponse]) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	executable := &parts{receive: stream.Recv}
	digest, manifest, err := s.config.Import(ctx, executable)
	if err != nil {
		return importStatus(err, executable.failure)
	}
	s.config.Log.Info("imported a plugin", "plugin", manifest.GetName(), "version", manifest.GetVersion(), "digest", digest)
	return stream.SendAndClose(&nodev1.ImportPluginResponse{
		Digest:   digest,
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Manifest: manifest,
	})
}

// importStatus turns the error of an import into the call's: what was wrong with the stream comes first, since the import then failed of it.
func importStatus(err, stream error) error {
	if stream != nil {
		return stream
	}
	var (
		notAPlugin *plugin.NotAPluginError
		manifest   *store.ManifestError
		version    *store.VersionError
	)
	switch {
	case errors.As(err, &notAPlugin), errors.As(err, &manifest), errors.As(err, &version):
		return status.Error(codes.InvalidArgument, err.Error())
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return status.Error(codes.ResourceExhausted, reason(err))
	}
	return failure(err)
}

// parts reads the executable of an import from its stream. It receives when it is read, so that the sender is as fast as the disk, and
// nothing runs beside the call.
type parts struct {
	receive func() (*nodev1.ImportPluginRequest, error)
	rest    []byte
	total   int64
	// failure is the status with which the stream is to end, once something was wrong with it; done says that it is at its end.
	failure error
	done    bool
}

// Read implements io.Reader.
func (p *parts) Read(into []byte) (int, error) {
	for len(p.rest) == 0 && len(into) > 0 {
		switch {
		case p.failure != nil:
			return 0, p.failure
		case p.done:
			return 0, io.EOF
		}
		p.next()
	}
	n := copy(into, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// next receives one message.
func (p *parts) next() {
	request, err := p.receive()
	switch {
	case errors.Is(err, io.EOF) && p.total == 0:
		p.failure = status.Error(codes.InvalidArgument, "nodeapi: no executable was sent")
	case errors.Is(err, io.EOF):
		p.done = true
	case err != nil:
		p.failure = err
	case len(request.GetData()) > maxPart:
		p.failure = status.Errorf(codes.InvalidArgument, "nodeapi: a message holds %d bytes of the executable, at most %d are taken: send smaller parts", len(request.GetData()), maxPart)
	case p.total+int64(len(request.GetData())) > maxExecutable:
		p.failure = status.Errorf(codes.InvalidArgument, "nodeapi: the executable is larger than %d bytes, the most that a node takes", maxExecutable)
	default:
		p.rest = request.GetData()
		p.total += int64(len(p.rest))
	}
}
