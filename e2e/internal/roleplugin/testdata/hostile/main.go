// The hostile plugin: roles that try whatever a role must not be able to do. It speaks to the core in raw gRPC, without the SDK, so that it can also
// speak wrongly; and to the kernel in raw system calls.
//
// A role performs attempts on order. An order is a file in the directory "orders" of its data directory, a result one in "results": that works however
// little the sandbox allows. What is tried is bounded so that it does no harm where nothing stops it.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// granted is a file that the role grantee may replace, boxed one that lies in a directory of the role's own. Set by the linker.
var granted, boxed string

// socketVariable is go-plugin's for the directory of the socket.
const socketVariable = "PLUGIN_UNIX_SOCKET_DIR"

func main() {
	if mode := os.Getenv(childVariable); mode != "" {
		child(mode)
		return
	}
	role := "describe"
	if parts := strings.Split(os.Getenv("REEVE_INSTANCE"), "/"); len(parts) == 3 {
		role = parts[1]
	}
	if err := serve(role); err != nil {
		fmt.Fprintln(os.Stderr, "hostile:", err)
		os.Exit(1)
	}
}

// serve is the plugin side of go-plugin's protocol, as far as it is needed.
func serve(role string) error {
	// Only SIGKILL ends it.
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	path := filepath.Join(os.Getenv(socketVariable), "plugin.sock")
	if misbehaveAtHandshake(role, path) {
		return nil
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	// As root the core is another user, and the directory is what keeps others away.
	if err := os.Chmod(path, 0o770); err != nil {
		return err
	}
	// The path stays when the listener is closed: something else may be there by then.
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	p := &plugin{name: role, socket: path, started: make(chan *rolev1.StartRequest, 1), stopped: make(chan struct{})}
	p.server = grpc.NewServer(p.serverOptions()...)
	rolev1.RegisterRoleServiceServer(p.server, p)
	fmt.Printf("1|1|unix|%s|grpc|\n", path)
	go p.run()
	if err := p.server.Serve(listener); err != nil || p.name != "swapper" {
		return err
	}
	select {} // it lives on without a server
}

// plugin serves the role protocol. It is one role at most.
type plugin struct {
	rolev1.UnimplementedRoleServiceServer
	name, socket string
	server       *grpc.Server
	started      chan *rolev1.StartRequest
	stopped      chan struct{}
	start        *rolev1.StartRequest
}

func manifest() *rolev1.Manifest {
	m := &rolev1.Manifest{Name: "hostile", Version: "0.1.0", Protocols: []string{"reeve.role.v1"}}
	grant := func(name, parameter, value string) *rolev1.Grant {
		return &rolev1.Grant{Name: name, Parameters: map[string]string{parameter: value}}
	}
	m.Roles = []*rolev1.RoleManifest{
		{Name: "attacker", Summary: "Tries to get what is not its own", ConsensusUser: "attacker"},
		{Name: "victim", Summary: "Has what others must not get", ConsensusUser: "victim"},
		{Name: "grantee", Summary: "Goes beyond its grants", Grants: []*rolev1.Grant{
			grant("replace-file", "path", granted), grant("replace-file", "path", boxed),
		}},
		{Name: "talker", Summary: "Goes beyond its ports", Grants: []*rolev1.Grant{grant("connect", "port", "1"), grant("listen", "port", "2999")}},
		{Name: "stubborn", Summary: "Outlives its stop"},
		// Bounds that are soon reached: what is asked is what becomes of who reaches them.
		{Name: "glutton", Summary: "Takes all that there is", ConsensusUser: "glutton", Grants: []*rolev1.Grant{{Name: "limit", Parameters: map[string]string{
			"memory": "256Mi", "processes": "128", "store-bytes": "64Mi",
		}}}},
		{Name: "stinted", Summary: "Has used up what it may store", ConsensusUser: "stinted", Grants: []*rolev1.Grant{grant("limit", "store-bytes", "4Mi")}},
		{Name: "swapper", Summary: "Puts another's socket in place of its own"},
		{Name: "lingerer", Summary: "Is removed, and stays", ConsensusUser: "lingerer"},
		{Name: "outcast", Summary: "Loses its user, and stays", ConsensusUser: "outcast"},
	}
	for _, l := range lies {
		m.Roles = append(m.Roles, &rolev1.RoleManifest{Name: l.role, Summary: l.summary})
	}
	return m
}

func (p *plugin) Describe(context.Context, *rolev1.DescribeRequest) (*rolev1.DescribeResponse, error) {
	return &rolev1.DescribeResponse{Manifest: manifest()}, nil
}

func (p *plugin) Start(ctx context.Context, request *rolev1.StartRequest) (*rolev1.StartResponse, error) {
	p.start = request
	if l := lieOf(p.name); l != nil && l.start != nil {
		return l.start(ctx)
	}
	select {
	case p.started <- request:
	default:
	}
	return &rolev1.StartResponse{}, nil
}

func (p *plugin) status() *rolev1.WatchResponse {
	return &rolev1.WatchResponse{
		InstanceId: p.start.GetInstanceId(), Role: p.start.GetRole(), ConfigurationGeneration: p.start.GetConfigurationGeneration(),
		State: rolev1.RoleState_ROLE_STATE_READY,
	}
}

func (p *plugin) Watch(_ *rolev1.WatchRequest, stream grpc.ServerStreamingServer[rolev1.WatchResponse]) error {
	if l := lieOf(p.name); l != nil && l.watch != nil {
		return l.watch(p, stream)
	}
	if err := stream.Send(p.status()); err != nil {
		return err
	}
	select {
	case <-stream.Context().Done():
	case <-p.stopped:
	}
	return nil
}

func (p *plugin) Stop(ctx context.Context, _ *rolev1.StopRequest) (*rolev1.StopResponse, error) {
	if p.name == "stubborn" || p.name == "lingerer" || p.name == "outcast" {
		// It holds its stop for ever.
		select {}
	}
	if l := lieOf(p.name); l != nil && l.stop != nil {
		return l.stop(ctx)
	}
	close(p.stopped)
	go func() {
		time.Sleep(50 * time.Millisecond) // for the answer to leave
		os.Exit(0)
	}()
	return &rolev1.StopResponse{}, nil
}

func (p *plugin) CheckHealth(ctx context.Context, _ *rolev1.CheckHealthRequest) (*rolev1.CheckHealthResponse, error) {
	if l := lieOf(p.name); l != nil && l.health != nil {
		return l.health(ctx)
	}
	return &rolev1.CheckHealthResponse{}, nil
}

func (p *plugin) GetMetrics(ctx context.Context, _ *rolev1.GetMetricsRequest) (*rolev1.GetMetricsResponse, error) {
	if l := lieOf(p.name); l != nil && l.metrics != nil {
		return l.metrics(ctx)
	}
	return nil, status.Error(codes.Unimplemented, "none")
}

// run performs what the started role is for.
func (p *plugin) run() {
	request := <-p.started
	if l := lieOf(p.name); l != nil {
		if l.run != nil {
			l.run(p)
		}
		return
	}
	r := &runner{start: request, plugin: p}
	if p.name == "victim" {
		r.victim()
	}
	r.follow()
}
