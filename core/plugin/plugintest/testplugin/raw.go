package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/core/plugin/plugintest"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// raw serves the role protocol without the SDK, badly.
type raw struct {
	rolev1.UnimplementedRoleServiceServer
	variant plugintest.Variant
	started atomic.Pointer[rolev1.StartRequest]
}

func serveRaw(variant plugintest.Variant, directory string) {
	path := filepath.Join(directory, "plugin1")
	listener, err := net.Listen("unix", path)
	if err != nil {
		fail("listen: %v", err)
	}
	server := grpc.NewServer()
	role := &raw{variant: variant}
	if variant.RPCs["Describe"] != plugintest.Absent {
		rolev1.RegisterRoleServiceServer(server, role)
	}
	fmt.Println("1|1|unix|" + path + "|grpc|")
	if variant.Chatter {
		go func() {
			for {
				fmt.Println(strings.Repeat("c", 1023))
				time.Sleep(time.Millisecond)
			}
		}()
	}
	if variant.Impostor {
		go role.beImpostor(path)
	}
	fail("serve: %v", server.Serve(listener))
}

// beImpostor does what the variant says on signals.
func (r *raw) beImpostor(path string) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGUSR2)
	for got := range signals {
		if got == syscall.SIGUSR2 {
			request := proto.CloneOf(r.started.Load())
			request.InstanceId += "0"
			r.started.Store(request)
			fmt.Fprintln(os.Stderr, "another ID")
			continue
		}
		cmd := exec.Command("/proc/self/exe", "listen", path)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			fail("listen: %v", err)
		}
	}
}

// impersonate serves the role protocol in the place of another process.
func impersonate(path string) {
	if err := os.Remove(path); err != nil {
		fail("impersonate: %v", err)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		fail("impersonate: %v", err)
	}
	fmt.Fprintln(os.Stderr, "another listener")
	server := grpc.NewServer()
	rolev1.RegisterRoleServiceServer(server, &raw{})
	fail("serve: %v", server.Serve(listener))
}

// act does what is said of a call, and returns an error if that is its answer.
func (r *raw) act(call string) error {
	switch r.variant.RPCs[call] {
	case plugintest.Hang:
		fmt.Fprintln(os.Stderr, call, "hangs")
		hang()
	case plugintest.Slow:
		time.Sleep(plugintest.Slowness)
	case plugintest.Refuse:
		return status.Error(codes.Internal, "no, thanks")
	case plugintest.HugeRefusal:
		return status.Error(codes.Internal, strings.Repeat("x", 100<<20))
	case plugintest.Absent:
		return status.Error(codes.Unimplemented, "unknown method "+call)
	}
	return nil
}

// much is 100 MB if a call is to answer with so much, and what is given otherwise.
func (r *raw) much(call, otherwise string) string {
	if r.variant.RPCs[call] == plugintest.Huge {
		return strings.Repeat("x", 100<<20)
	}
	return otherwise
}

func (r *raw) Describe(context.Context, *rolev1.DescribeRequest) (*rolev1.DescribeResponse, error) {
	manifest := plugintest.Record("", r.variant).GetManifest()
	if r.variant.Protocols != nil {
		manifest.Protocols = r.variant.Protocols
	}
	manifest.Roles[0].Summary = r.much("Describe", "")
	return &rolev1.DescribeResponse{Manifest: manifest}, r.act("Describe")
}

func (r *raw) Start(_ context.Context, request *rolev1.StartRequest) (*rolev1.StartResponse, error) {
	r.started.Store(request)
	return &rolev1.StartResponse{}, r.act("Start")
}

func (r *raw) Watch(_ *rolev1.WatchRequest, stream grpc.ServerStreamingServer[rolev1.WatchResponse]) error {
	if err := r.act("Watch"); err != nil {
		return err
	}
	for range r.variant.Print {
		fmt.Print(strings.Repeat("p", 1<<10))
	}
	request := r.started.Load()
	err := stream.Send(&rolev1.WatchResponse{
		InstanceId: request.GetInstanceId(), Role: request.GetRole(), ConfigurationGeneration: request.GetConfigurationGeneration(),
		State: rolev1.RoleState_ROLE_STATE_READY, Reason: r.much("Watch", ""),
	})
	if err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (r *raw) Stop(_ context.Context, request *rolev1.StopRequest) (*rolev1.StopResponse, error) {
	fmt.Fprintln(os.Stderr, "stopped:", request.GetReason())
	if err := r.act("Stop"); err != nil {
		return nil, err
	}
	os.Exit(0)
	return nil, nil
}

func (r *raw) CheckHealth(context.Context, *rolev1.CheckHealthRequest) (*rolev1.CheckHealthResponse, error) {
	return &rolev1.CheckHealthResponse{}, r.act("CheckHealth")
}

func (r *raw) GetMetrics(context.Context, *rolev1.GetMetricsRequest) (*rolev1.GetMetricsResponse, error) {
	return &rolev1.GetMetricsResponse{Text: []byte(r.much("GetMetrics", "up 1\n"))}, r.act("GetMetrics")
}
