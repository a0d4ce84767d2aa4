package measures

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/reeveproject/reeve/core/access"
	"github.com/reeveproject/reeve/core/hostapi"
	"github.com/reeveproject/reeve/core/identity"
	"github.com/reeveproject/reeve/core/membership"
	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/e2e/bench"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/proto/remit"
	"github.com/reeveproject/reeve/sdk/event"
)

// hostCall compares a call on a host socket, which is checked against the grant and reads a small file, with a bare gRPC call that reads the same file.
func (b *Bed) hostCall(ctx context.Context, say func(string, ...any)) (results []bench.Result, err error) {
	warm, count := b.count(50, 4000)
	at, err := b.place()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, at.remove()) }()
	file := filepath.Join(at.work, "hosts")
	if err := os.WriteFile(file, make([]byte, 200), 0o644); err != nil {
		return nil, err
	}
	request := &hostv1.ReadFileRequest{Path: file}
	ours, closeOurs, err := servedHost(at, file)
	if err != nil {
		return nil, err
	}
	defer closeOurs()
	theirs, closeTheirs, err := bareHost(at)
	if err != nil {
		return nil, err
	}
	defer closeTheirs()
	say("%d pairs", count)
	once := func(client hostv1.HostServiceClient) bench.Side {
		return func(ctx context.Context) (float64, error) {
			begun := time.Now()
			_, err := client.ReadFile(ctx, request)
			return milliseconds(time.Since(begun)), err
		}
	}
	pairs, err := bench.Interleave(ctx, warm, count, once(ours), once(theirs))
	if err != nil {
		return nil, err
	}
	return []bench.Result{bench.OfPairs(bench.Result{
		Name: "ReadFile", What: "a granted call on a host socket", Against: "a bare gRPC unary call on a Unix socket that reads the same file", Unit: "ms",
		Notes: []string{"client and server in the process of the harness; the file has 200 bytes"},
	}, bench.MedianRatio, bench.AtMost(1.3), pairs)}, nil
}

func servedHost(at place, file string) (hostv1.HostServiceClient, func(), error) {
	run := filepath.Join(at.run, "h")
	if err := os.Mkdir(run, 0o711); err != nil {
		return nil, nil, err
	}
	hosts, err := hostapi.New(hostapi.Config{
		Log: hclog.NewNullLogger(), RunDir: run, Membership: event.New(membership.Status{}), Directory: event.New(&hostv1.Directory{}),
		Network: event.New([]string{"127.0.0.1"}), Peers: event.New([]string(nil)), Curators: event.New([]string(nil)), Access: event.New(access.States{}), Identity: event.New(&identity.Identity{}),
		Operators: event.New(&hostv1.Operators{}),
	})
	if err != nil {
		return nil, nil, err
	}
	socket, closeSocket, err := hosts.Open(&plugin.Remit{
		InstanceID: "reeve-0/hello/1", Name: "hello.1", Role: "hello", UID: uint32(os.Geteuid()), GID: uint32(os.Getegid()),
		Manifest: &rolev1.RoleManifest{Name: "hello"},
		Grants:   &clusterv1.RoleGrants{Role: "hello", Grants: []*rolev1.Grant{{Name: remit.ReplaceFile, Parameters: map[string]string{"path": file}}}},
	})
	if err != nil {
		return nil, nil, err
	}
	conn, err := dialSocket(socket)
	if err != nil {
		closeSocket()
		return nil, nil, err
	}
	return hostv1.NewHostServiceClient(conn), func() {
		_ = conn.Close()
		closeSocket()
	}, nil
}

// bareReader answers ReadFile as anybody would write it.
type bareReader struct {
	hostv1.UnimplementedHostServiceServer
}

func (bareReader) ReadFile(_ context.Context, request *hostv1.ReadFileRequest) (*hostv1.ReadFileResponse, error) {
	content, err := os.ReadFile(request.GetPath())
	return &hostv1.ReadFileResponse{Content: content}, err
}

func bareHost(at place) (hostv1.HostServiceClient, func(), error) {
	socket := filepath.Join(at.run, "bare.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, nil, err
	}
	server := grpc.NewServer()
	hostv1.RegisterHostServiceServer(server, bareReader{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // ends with Stop
	}()
	end := func() {
		server.Stop()
		<-done
	}
	conn, err := dialSocket(socket)
	if err != nil {
		end()
		return nil, nil, err
	}
	return hostv1.NewHostServiceClient(conn), func() {
		_ = conn.Close()
		end()
	}, nil
}

func dialSocket(path string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"))
}
