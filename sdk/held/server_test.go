package held_test

import (
	"compress/gzip"
	"context"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/reeveproject/reeve/sdk/held"
)

// zipping is the compressor that programs are linked with, if any.
type zipping struct{}

func (zipping) Name() string                                  { return "gzip" }
func (zipping) Compress(to io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(to), nil }
func (zipping) Decompress(from io.Reader) (io.Reader, error)  { return gzip.NewReader(from) }

func init() { encoding.RegisterCompressor(zipping{}) }

// listener has the connections that it accepts counted.
type listener struct {
	net.Listener
	counts *held.Counts
}

func (l listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.counts.Connection(conn, "client"), nil
}

// serve serves a method that answers with 1 MiB, and returns what connects to it.
func serve(t *testing.T, config held.Config) (dial func(options ...grpc.DialOption) *grpc.ClientConn) {
	t.Helper()
	config.Refusal = func(client string, held, _ int) error {
		return status.Errorf(codes.ResourceExhausted, "%s holds %d bytes", client, held)
	}
	counts := held.New(config)
	server := grpc.NewServer(append(counts.Options(), grpc.InTapHandle(counts.Begin), grpc.ChainUnaryInterceptor(counts.Unary), grpc.ChainStreamInterceptor(counts.Stream))...)
	server.RegisterService(&grpc.ServiceDesc{ServiceName: "test", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{
		MethodName: "Ask",
		Handler: func(_ any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
			request := new(wrapperspb.BytesValue)
			if err := decode(request); err != nil {
				return nil, err
			}
			return intercept(ctx, request, &grpc.UnaryServerInfo{FullMethod: ask}, func(context.Context, any) (any, error) {
				return wrapperspb.Bytes(make([]byte, mib)), nil
			})
		},
	}}}, nil)
	socket, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener{socket, counts}) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return func(options ...grpc.DialOption) *grpc.ClientConn {
		t.Helper()
		conn, err := grpc.NewClient("unix:"+socket.Addr().String(), append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
}

const (
	ask = "/test/Ask"
	mib = 1 << 20
)

var generous = held.Config{Unfinished: 8 * mib, AllUnfinished: 8 * mib, Held: 8 * mib, AllUnread: 8 * mib}

func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// A server takes no compressed request and compresses no answer, although its program is linked with a compressor.
func TestNothingIsCompressed(t *testing.T) {
	var answered compressions
	conn := serve(t, generous)(grpc.WithStatsHandler(&answered))
	got := new(wrapperspb.BytesValue)
	if err := conn.Invoke(patient(t), ask, wrapperspb.Bytes(make([]byte, mib)), got, grpc.UseCompressor("gzip")); err == nil || !strings.Contains(err.Error(), "no compressed requests") {
		t.Errorf("a compressed request of 1 MiB: %v, and an answer of %d bytes", err, len(got.GetValue()))
	}
	answered.names = nil
	// Of an empty request gRPC says that it is compressed, and does not compress it.
	if err := conn.Invoke(patient(t), ask, new(wrapperspb.BytesValue), got, grpc.UseCompressor("gzip")); err != nil || len(got.GetValue()) != mib {
		t.Errorf("a request as it is: %v, and %d bytes", err, len(got.GetValue()))
	}
	if answered.names == nil || slices.Contains(answered.names, "gzip") {
		t.Errorf("answers are compressed by %q", answered.names)
	}
}

// compressions are those of the answers that a client was sent, one call at a time.
type compressions struct{ names []string }

func (c *compressions) HandleRPC(_ context.Context, what stats.RPCStats) {
	if header, is := what.(*stats.InHeader); is {
		c.names = append(c.names, header.Compression)
	}
}

func (*compressions) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (*compressions) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (*compressions) HandleConn(context.Context, stats.ConnStats)                       {}
