package role_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/sdk/leaktest"
	"github.com/reeveproject/reeve/sdk/role"
)

// The test's binary is also the plugin that the tests launch, if this environment variable says which.
const asPlugin = "REEVE_TEST_PLUGIN"

// withoutPause keeps a process that the race detector watches from sleeping for a second when it ends. Its environment is not that of the tests.
const withoutPause = "GORACE=atexit_sleep_ms=10"

func TestMain(m *testing.M) {
	switch os.Getenv(asPlugin) {
	case "probe":
		role.Serve(probe())
	case "broken":
		role.Serve(role.Plugin{Name: "Broken", Version: "v1", Roles: []role.Role{{Name: "x"}, {Name: "x"}}})
	case "hello":
		Example()
	case "core":
		beCore()
	case "stranger":
		beStranger()
	default:
		leaktest.VerifyTestMain(m)
		return
	}
	panic("Serve returned")
}

// probe is a plugin whose roles do what their configuration says.
func probe() role.Plugin {
	return role.Plugin{
		Name: "probe", Version: "1.2.3-rc.1+build",
		Roles: []role.Role{
			{
				Name: "probe", Summary: "does what it is told", ConsensusUser: "probe",
				Requires: []string{"reeve.consensus.v1", "other"}, Provides: []string{"probe.v1"},
				Grants:              []role.Grant{{Name: "replace-file", Parameters: map[string]string{"path": file}}},
				ConfigurationSchema: `{"type": "object"}`,
				Ports:               []role.Port{{Name: "http", Protocol: "tcp", Number: 80}},
				InSplit:             role.Continue,
				CheckConfiguration: func(document []byte) error {
					var c configuration
					return role.Decode(document, &c)
				},
				Run: run,
			},
			{Name: "other", Register: store("other"), Run: wait},
			{Name: "store", Register: store("store"), StartsFromCache: true, InSplit: role.Stop, Run: wait},
			{Name: "wire", Run: serveWire},
			{Name: "tied", EndsWithCore: true, Run: wait},
			{Name: "stays", StopGrace: time.Second, Run: func(_ context.Context, host *role.Host) error {
				host.Ready()
				select {}
			}},
			watched(),
			{
				Name: "picky", Run: wait, ConfigurationSchema: `{"type": "object"}`,
				CheckGrants: func(document []byte, grants []role.Grant) error {
					if want := `"` + fmt.Sprint(grants) + `"`; want != string(document) {
						return fmt.Errorf("granted %v", grants)
					}
					return nil
				},
			},
		},
	}
}

const file, mountedFile = "/etc/probe", "/etc/mounted"

type configuration struct {
	Do     string   `json:"do"`
	Filler []string `json:"filler"`
}

func wait(ctx context.Context, host *role.Host) error {
	host.Ready()
	<-ctx.Done()
	return nil
}

func run(ctx context.Context, host *role.Host) error {
	var c configuration
	if err := role.Decode(host.Configuration(), &c); err != nil {
		return err
	}
	switch c.Do {
	case "return":
		return nil
	case "fail":
		return errors.New("no \xff luck")
	case "panic":
		panic("out of luck")
	case "goexit":
		runtime.Goexit()
	case "stay":
		host.Ready()
		select {}
	case "fail-late":
		host.Ready()
		<-ctx.Done()
		return errors.New("could not clean up")
	case "shout":
		shout()
	case "publish":
		publish(host)
	case "follow":
		go followHost(ctx, host)
	case "clean":
		host.Ready()
		<-ctx.Done()
		return clean(ctx, host)
	case "files":
		return files(ctx, host)
	case "machine":
		return machine(ctx, host)
	case "blocked":
		return blocked(ctx, host)
	case "tell":
		host.SetValue("told", strings.Join([]string{
			host.InstanceID(), host.NodeID(), host.Role(), host.DataDirectory(), host.RuntimeDirectory(),
		}, " "))
	}
	return wait(ctx, host)
}

// blocked waits for the machine to have what is to be had, and says what that is.
func blocked(ctx context.Context, host *role.Host) error {
	host.Blocked("the machine has no \xff lamp")
	network := host.Network().Watch()
	for {
		now, err := network.Next(ctx)
		if err != nil {
			return nil
		}
		switch now[0] {
		case "192.0.2.1":
			host.Ready()
		case "192.0.2.2":
			host.Blocked("the lamp is gone")
		}
	}
}

// shout writes more than a pipe holds, wherever a careless library might write.
func shout() {
	line := strings.Repeat("x", 1023)
	for range 128 {
		fmt.Println(line)
		fmt.Fprintln(os.Stderr, line)
	}
	fmt.Println("end of output")
	fmt.Fprintln(os.Stderr, "end of errors")
	println("end of println")
}

func publish(host *role.Host) {
	host.SetEndpoint("http", "127.0.0.1:1")
	host.SetEndpoint("gone", "127.0.0.1:2")
	host.SetEndpoint("other", "127.0.0.1:3")
	host.SetEndpoint("http", "127.0.0.1:4")
	host.SetEndpoint("gone", "")
	host.SetEndpoint("bad\xff", "127.0.0.1:5")
	host.SetEndpoint("", "127.0.0.1:5")
	host.SetEndpoint(strings.Repeat("x", 65), "127.0.0.1:5")
	host.SetEndpoint("escapes", "\x1b[2J")
	host.SetEndpoint("long", strings.Repeat("x", 513))
	for n := range 40 {
		host.SetEndpoint(fmt.Sprint("e", n), strings.Repeat("x", 512))
	}
	host.SetValue("size", strings.Repeat("x", 4096))
	host.SetValue("oversize", strings.Repeat("x", 4097))
	host.SetValue("bad", "\xff")
	host.SetValue("", "nameless")
	host.SetValue("two\nlines", "x")
	host.SetValue(strings.Repeat("x", 65), "x")
	host.SetValue("gone", "soon")
	host.SetValue("gone", "")
	for n := range 40 {
		host.SetValue(fmt.Sprint("n", n), "x")
	}
	host.Degraded("not \xff yet")
}

// followHost shows what the role sees of its host as published values.
func followHost(ctx context.Context, host *role.Host) {
	membership, directory, network := host.Membership().Watch(), host.Directory().Watch(), host.Network().Watch()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-membership.Changed():
			now, _ := membership.Next(ctx)
			host.SetValue("membership", now.GetReason())
		case <-directory.Changed():
			now, _ := directory.Next(ctx)
			host.SetValue("directory", fmt.Sprint(now.GetRevision()))
		case <-network.Changed():
			now, _ := network.Next(ctx)
			host.SetValue("network", strings.Join(now, " "))
		}
		host.SetValue("changes", fmt.Sprint(n))
	}
}

// clean does what a role does that has to undo something when it is stopped.
func clean(ctx context.Context, host *role.Host) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	_, digest, err := host.ReadFile(ctx, file)
	if err != nil {
		return err
	}
	_, _, err = host.ReplaceFile(ctx, file, digest, []byte("clean"))
	return err
}

// store is a service that says which role it belongs to.
func store(name string) func(grpc.ServiceRegistrar) {
	return func(registrar grpc.ServiceRegistrar) {
		consensusv1.RegisterConsensusServiceServer(registrar, &storeService{name: name})
	}
}

type storeService struct {
	consensusv1.UnimplementedConsensusServiceServer
	name string
}

func (s *storeService) Form(_ context.Context, request *consensusv1.FormRequest) (*consensusv1.FormResponse, error) {
	if request.GetClusterId() == "panic" {
		panic("no such cluster")
	}
	return &consensusv1.FormResponse{MemberId: s.name}, nil
}

func (s *storeService) WatchStore(_ *consensusv1.WatchStoreRequest, stream grpc.ServerStreamingServer[consensusv1.WatchStoreResponse]) error {
	if err := stream.Send(&consensusv1.WatchStoreResponse{Status: &consensusv1.StoreStatus{MemberId: s.name}}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return stream.Context().Err()
}
