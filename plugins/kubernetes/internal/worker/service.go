package worker

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/sdk/role"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	kubernetesv1 "github.com/reeveproject/reeve/proto/reeve/kubernetes/v1"
)

// ServiceEndpoint is the name of what the role serves to operators.
const ServiceEndpoint = "worker"

const (
	// maxArchive is how large an archive of images may be, as it comes and as it is when it is not compressed any more.
	maxArchive = 16 << 30
	// maxChunk is how much of it one message may have.
	maxChunk = 1 << 20
	// maxLoads is how many archives may be loaded at a time.
	maxLoads = 2
	// idleTime is how long nothing may come of an archive.
	idleTime = 2 * time.Minute
)

// importer puts archives of images into the store of the container runtime.
type importer interface {
	// Import reads an archive to its end, and returns by what names its images are in the store. Where it fails it closes the archive; nothing of it runs on when it returns.
	Import(ctx context.Context, archive io.ReadCloser) (references []string, err error)
}

var (
	// errNoName says that the images of an archive have no names, by which no pod could mean them.
	errNoName = errors.New("the archive names no image: `docker save` has to be given the name of the image, and not its ID")
	// errNoRuntime says that nobody is there who would take an archive.
	errNoRuntime = errors.New("the container runtime does not run")
	errStopping  = status.Error(codes.Unavailable, "the role stops")
)

// operatorService answers operators of the cluster. Who calls, the connection has proved.
type operatorService struct {
	kubernetesv1.UnimplementedWorkerServiceServer
	images importer
	// check looks at what the machine lacks.
	check func(context.Context) []*kubernetesv1.Missing
	log   hclog.Logger
	// largest is maxArchive, except in tests.
	largest int64
	// watch calls expired after idleTime, unless stop is called first. Tests replace it.
	watch func(expired func()) (stop func())

	// loading and checking have room for as many calls as may be answered at a time.
	loading, checking chan struct{}
	// stopping is done when the role is to stop.
	stopping context.Context
	stop     context.CancelFunc
	// receiving are those who receive archives; each ends with its call.
	receiving sync.WaitGroup
}

func newOperatorService(images importer, check func(context.Context) []*kubernetesv1.Missing, log hclog.Logger) *operatorService {
	s := &operatorService{
		images: images, check: check, log: log, largest: maxArchive,
		watch: func(expired func()) func() {
			timer := time.AfterFunc(idleTime, expired)
			return func() { timer.Stop() }
		},
		loading: make(chan struct{}, maxLoads), checking: make(chan struct{}, 1),
	}
	s.stopping, s.stop = context.WithCancel(context.Background())
	return s
}

// listenForOperators makes the endpoint. No role is let in.
func listenForOperators(ctx context.Context, host *role.Host) (*role.Listener, error) {
	return host.Listen(ctx, ServiceEndpoint, role.AllowRoles(), role.AllowOperators(), role.Protocols("h2"))
}

// serve answers until ctx is done, and has ended every call when it returns. It is called once.
func (s *operatorService) serve(ctx context.Context, listener net.Listener) error {
	defer s.receiving.Wait()
	server := grpc.NewServer(grpc.Creds(role.Credentials()), grpc.MaxRecvMsgSize(maxChunk+1<<10))
	kubernetesv1.RegisterWorkerServiceServer(server, s)
	ended := make(chan struct{})
	defer func() { <-ended }()
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		s.stop()
		server.GracefulStop()
	})
	err := server.Serve(listener)
	if stop() {
		close(ended)
		s.stop()
		server.Stop()
		return fmt.Errorf("%s is served no more: %w", ServiceEndpoint, err)
	}
	return nil
}

// caller is the operator who calls.
func caller(ctx context.Context) (role.Operator, error) {
	who, ok := role.OperatorFromContext(ctx)
	if !ok {
		return role.Operator{}, status.Error(codes.PermissionDenied, "only operators of the cluster may call it: `reeve login` begins a session")
	}
	return who, nil
}

// Check implements kubernetesv1.WorkerServiceServer.
func (s *operatorService) Check(ctx context.Context, _ *kubernetesv1.CheckRequest) (*kubernetesv1.CheckResponse, error) {
	if _, err := caller(ctx); err != nil {
		return nil, err
	}
	select {
	case s.checking <- struct{}{}:
		defer func() { <-s.checking }()
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	case <-s.stopping.Done():
		return nil, errStopping
	}
	return &kubernetesv1.CheckResponse{Missing: s.check(ctx)}, nil
}

// LoadImage implements kubernetesv1.WorkerServiceServer.
func (s *operatorService) LoadImage(stream grpc.ClientStreamingServer[kubernetesv1.LoadImageRequest, kubernetesv1.LoadImageResponse]) error {
	who, err := caller(stream.Context())
	if err != nil {
		return err
	}
	// An image is what pods run, as root of the node if they may.
	if who.Role != hostv1.OperatorRole_OPERATOR_ROLE_OWNER && who.Role != hostv1.OperatorRole_OPERATOR_ROLE_OPERATOR {
		return status.Errorf(codes.PermissionDenied, "%s may only look: images are loaded by operators with the role operator or owner", who)
	}
	select {
	case s.loading <- struct{}{}:
		defer func() { <-s.loading }()
	default:
		return status.Errorf(codes.ResourceExhausted, "%d archives of images are being loaded on this node: try again when one of them is done", maxLoads)
	}
	began := time.Now()
	references, received, err := s.load(stream)
	if err != nil {
		s.log.Warn("an archive of images was not loaded", "operator", who.String(), "bytes", received, "error", err)
		return err
	}
	s.log.Info("images were loaded", "operator", who.String(), "images", references, "bytes", received, "took", time.Since(began))
	return stream.SendAndClose(&kubernetesv1.LoadImageResponse{References: references, Bytes: uint64(received)})
}

// load has the archive imported that a stream brings, and returns how much came. The error is one of gRPC's.
func (s *operatorService) load(stream grpc.ClientStreamingServer[kubernetesv1.LoadImageRequest, kubernetesv1.LoadImageResponse]) ([]string, int64, error) {
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	defer context.AfterFunc(s.stopping, func() { cancel(errStopping) })()

	reader, writer := io.Pipe()
	// The end of ctx stops the importer, this stops the writer, and the end of the call stops Recv.
	defer context.AfterFunc(ctx, func() { _ = writer.CloseWithError(context.Cause(ctx)) })()
	defer func() { _ = reader.Close() }()
	var received int64
	complete := make(chan struct{})
	s.receiving.Go(func() {
		defer close(complete)
		err := s.receive(stream, writer, cancel, &received)
		if err != nil {
			// First, so that whoever imports is ended by it, and not by what it could take for the end of the archive.
			cancel(err)
		}
		_ = writer.CloseWithError(err)
	})
	archive, err := s.open(reader)
	var references []string
	if err == nil {
		references, err = s.images.Import(ctx, archive)
	}
	if err == nil {
		// What follows the end of the archive is nothing, and the end of the stream says that all of it came.
		_, err = io.Copy(io.Discard, reader)
	}
	if err == nil && len(references) == 0 {
		err = errNoName
	}
	if err == nil {
		<-complete
		return references, received, nil
	}
	// If the load was cancelled, return the cause, not the error that followed from it.
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return nil, 0, rpcError(err)
}

// receive passes on what a stream brings, until that is complete or nobody wants it any more.
func (s *operatorService) receive(
	stream grpc.ClientStreamingServer[kubernetesv1.LoadImageRequest, kubernetesv1.LoadImageResponse], to io.Writer, cancel context.CancelCauseFunc, received *int64,
) error {
	for {
		// Only the sender is waited for here: whoever imports may take its time.
		stop := s.watch(func() { cancel(status.Errorf(codes.DeadlineExceeded, "nothing came of the archive for %s", idleTime)) })
		request, err := stream.Recv()
		stop()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		*received += int64(len(request.GetChunk()))
		if *received > s.largest {
			return s.tooLarge()
		}
		if _, err := to.Write(request.GetChunk()); err != nil {
			return nil // nobody reads any more, and it is known why
		}
	}
}

func (s *operatorService) tooLarge() error {
	return status.Errorf(codes.ResourceExhausted, "the archive is larger than %d GiB, which is as much as is taken", s.largest>>30)
}

// open looks at how an archive begins, and returns it as a tar.
func (s *operatorService) open(from io.ReadCloser) (io.ReadCloser, error) {
	buffered := bufio.NewReader(from)
	// Where the magic of a tar is; that of gzip is at the beginning.
	const magic, end = 257, 262
	head, err := buffered.Peek(end)
	if bytes.HasPrefix(head, []byte{0x1f, 0x8b}) {
		expanded, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "the archive is compressed with gzip, and damaged: %s", err)
		}
		buffered = bufio.NewReader(&bounded{from: expanded, left: s.largest, over: s.tooLarge()})
		head, err = buffered.Peek(end)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
	} else if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case len(head) == 0:
		return nil, status.Error(codes.InvalidArgument, "the archive is empty")
	case len(head) < end || string(head[magic:end]) != "ustar":
		return nil, status.Error(codes.InvalidArgument, "it is no archive of images: want a tar, as `docker save` writes it or with the layout of OCI, which may be compressed with gzip")
	}
	return struct {
		io.Reader
		io.Closer
	}{buffered, from}, nil
}

// bounded fails where more comes than may.
type bounded struct {
	from io.Reader
	left int64
	over error
}

// Read implements io.Reader.
func (b *bounded) Read(into []byte) (int, error) {
	n, err := b.from.Read(into)
	if b.left -= int64(n); b.left < 0 {
		return 0, b.over
	}
	return n, err
}

// rpcError is an error as a call is answered with it.
func rpcError(err error) error {
	switch _, ours := status.FromError(err); {
	case ours:
		return err
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	case errors.Is(err, errNoName):
		return status.Error(codes.InvalidArgument, err.Error())
	case errors.Is(err, gzip.ErrChecksum), errors.Is(err, gzip.ErrHeader), errors.Is(err, io.ErrUnexpectedEOF):
		return status.Errorf(codes.InvalidArgument, "the archive is damaged: %s", err)
	case errors.Is(err, errNoRuntime):
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	return status.Error(codes.Internal, err.Error())
}
