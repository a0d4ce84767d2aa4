package nodeapi_test

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/nodeapi"
	"github.com/reeveproject/reeve/core/roles"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

func TestWhatTheNodeIsTold(t *testing.T) {
	a := serve(t)
	client := a.client()
	key := newKey(t).Public().(ed25519.PublicKey)
	restarted, err := client.RestartRole(a.context(), &nodev1.RestartRoleRequest{Role: "lighthouse", DryRun: true})
	if err != nil || restarted.GetInstanceId() != "reeve-1/lighthouse/7" {
		t.Errorf("RestartRole: %v, %v", restarted, err)
	}
	debugged, err := client.DebugRole(a.context(), &nodev1.DebugRoleRequest{Role: "lighthouse", Socket: "/tmp/plugin.sock", DryRun: true})
	if err != nil || debugged.GetPid() != 42 || debugged.GetInstanceId() != "reeve-1/lighthouse/7" {
		t.Errorf("DebugRole: %v, %v", debugged, err)
	}
	recovered, err := client.RecoverStore(a.context(), &nodev1.RecoverStoreRequest{})
	if err != nil || recovered.GetSizeBefore() != 20 || recovered.GetSizeAfter() != 10 {
		t.Errorf("RecoverStore: %v, %v", recovered, err)
	}
	replaced, err := client.ReplaceOwner(a.context(), &nodev1.ReplaceOwnerRequest{OwnerPublicKey: key, DryRun: true})
	if err != nil || !slices.Equal(replaced.GetWaitingNodes(), []string{"reeve-2"}) {
		t.Errorf("ReplaceOwner: %v, %v", replaced, err)
	}
	peers, err := client.SetPeers(a.context(), &nodev1.SetPeersRequest{Peers: []string{"192.0.2.1", "db.example"}, DryRun: true})
	if err != nil || !slices.Equal(peers.GetPeers(), []string{"192.0.2.1", "db.example"}) {
		t.Errorf("SetPeers: %v, %v", peers, err)
	}
	metrics, err := client.GetMetrics(a.context(), &nodev1.GetMetricsRequest{})
	if err != nil || string(metrics.GetText()) != "reeve_up 1\n" {
		t.Errorf("GetMetrics: %v, %v", metrics, err)
	}
	role, err := client.GetRole(a.context(), &nodev1.GetRoleRequest{Role: "lighthouse"})
	if err != nil || role.GetSandbox().GetUid() != 7 {
		t.Errorf("GetRole: %v, %v", role, err)
	}
	want := []string{"restart lighthouse true", "debug lighthouse at /tmp/plugin.sock true", "recover false", fmt.Sprintf("replace owner by %x for user %d true", key, os.Geteuid()), "peers [192.0.2.1 db.example] true", "metrics", "role lighthouse"}
	if got := a.wasDone(); !slices.Equal(got, want) {
		t.Errorf("the node was told %q, want %q", got, want)
	}
	if _, err := client.GetRole(a.context(), &nodev1.GetRoleRequest{Role: "../x"}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("what is no role: %v", err)
	}
	if _, err := client.RestartRole(a.context(), &nodev1.RestartRoleRequest{Role: "../x"}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("what is no role: %v", err)
	}
	if _, err := client.DebugRole(a.context(), &nodev1.DebugRoleRequest{Role: "../x", Socket: "/tmp/plugin.sock"}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("what is no role: %v", err)
	}
	a.everybody()
	for name, certificate := range map[string]*tls.Certificate{"operator": a.operator("alice", aliceID), "owner": selfSigned(t, a.owner)} {
		remote := nodev1.NewNodeServiceClient(a.remote(certificate))
		if _, err := remote.DebugRole(a.context(), &nodev1.DebugRoleRequest{Role: "lighthouse", Socket: "/tmp/plugin.sock"}); status.Code(err) != codes.PermissionDenied {
			t.Errorf("DebugRole by the %s from afar: %v", name, err)
		}
	}
	if _, err := client.ReplaceOwner(a.context(), &nodev1.ReplaceOwnerRequest{OwnerPublicKey: key[:31]}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("what is no key: %v", err)
	}
	if _, err := client.SetPeers(a.context(), &nodev1.SetPeersRequest{Peers: []string{"wrong:1"}}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("what is no peer: %v", err)
	}
	if got := a.wasDone(); len(got) != 0 {
		t.Errorf("the node was told %q", got)
	}
}

func TestWhyTheNodeRefuses(t *testing.T) {
	a := serve(t)
	for name, test := range map[string]struct {
		fails error
		code  codes.Code
		says  string
	}{
		"no such role":     {fmt.Errorf("restart: %w", &roles.NotDesiredError{Role: "x", Desired: []string{"curator"}}), codes.NotFound, "reeve status"},
		"the end":          {fmt.Errorf("restart: %w", roles.ErrStopping), codes.Unavailable, "stopping"},
		"a status":         {status.Error(codes.FailedPrecondition, "no curator here"), codes.FailedPrecondition, "no curator here"},
		"a wrapped status": {fmt.Errorf("recover: %w", status.Error(codes.Unavailable, "none runs")), codes.Unavailable, "recover: "},
		"too late":         {fmt.Errorf("restart: %w", context.DeadlineExceeded), codes.DeadlineExceeded, ""},
		"anything":         {errors.New("broken\x1b[2J\n" + strings.Repeat("x", 1<<20)), codes.Internal, `broken\x1b[2J\nxxx`},
	} {
		a.answers(test.fails)
		_, err := a.client().RestartRole(a.context(), &nodev1.RestartRoleRequest{Role: "x"})
		if status.Code(err) != test.code || !strings.Contains(err.Error(), test.says) || len(err.Error()) > 5000 {
			t.Errorf("%s: %.300v", name, err)
		}
		if _, err := a.client().GetRole(a.context(), &nodev1.GetRoleRequest{Role: "x"}); status.Code(err) != test.code || !strings.Contains(err.Error(), test.says) {
			t.Errorf("GetRole: %s: %.300v", name, err)
		}
	}
}

// watched returns the events that a request finds.
func (a *api) watched(request *nodev1.WatchEventsRequest) []*nodev1.Event {
	a.t.Helper()
	stream, err := a.client().WatchEvents(a.context(), request)
	if err != nil {
		a.t.Fatal(err)
	}
	var all []*nodev1.Event
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			a.t.Fatal(err)
		}
		if len(response.GetEvents()) == 0 {
			a.t.Error("a message without events")
		}
		all = append(all, response.GetEvents()...)
	}
}

func TestEventsAreWatched(t *testing.T) {
	nodeapi.WaitsForEver(t)
	a := serve(t)
	for n := range 1000 {
		a.events.Record(&nodev1.Event{Type: fmt.Sprint("Event", n)})
	}
	if err := a.events.Sync(a.context()); err != nil {
		t.Fatal(err)
	}
	all := a.watched(&nodev1.WatchEventsRequest{})
	if len(all) != 1001 || all[1000].GetType() != "Event999" {
		t.Errorf("%d events, up to %v", len(all), all[len(all)-1])
	}
	if got := a.watched(&nodev1.WatchEventsRequest{After: 999}); len(got) != 2 || got[0].GetSequence() != 1000 {
		t.Errorf("after 999: %v", got)
	}
	if got := a.watched(&nodev1.WatchEventsRequest{Tail: 3}); len(got) != 3 || got[0].GetSequence() != 999 {
		t.Errorf("the last three: %v", got)
	}
	stream, err := a.client().WatchEvents(a.context(), &nodev1.WatchEventsRequest{Tail: 1, Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 100 {
		response, err := stream.Recv()
		if want := fmt.Sprint("Event", 999+n); err != nil || response.GetEvents()[0].GetType() != want {
			t.Fatalf("%v, %v, want %s", response, err, want)
		}
		a.events.Record(&nodev1.Event{Type: fmt.Sprint("Event", 1000+n)})
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	a.stop()
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "stopping") {
		t.Errorf("at the end: %v", err)
	}
}

// calls returns the audited calls that were recorded after an event.
func (a *api) calls(after uint64) []*nodev1.Event {
	a.t.Helper()
	if err := a.events.Sync(a.context()); err != nil {
		a.t.Fatal(err)
	}
	return a.watched(&nodev1.WatchEventsRequest{After: after})
}

func TestAuditedCallsAreRecorded(t *testing.T) {
	a := serve(t)
	a.everybody()
	a.imports(digests)
	owner, viewer := a.remote(selfSigned(t, a.owner)), a.remote(a.operator("bob", bobID))
	alice := nodev1.NewNodeServiceClient(a.remote(a.operator("alice", aliceID)))
	me := fmt.Sprintf("user %d", os.Geteuid())
	key := newKey(t).Public().(ed25519.PublicKey)
	invoke := func(conn *grpc.ClientConn, method string, request, response any) {
		_ = conn.Invoke(a.context(), method, request, response)
	}
	for _, test := range []struct {
		call    func()
		message string
		role    string
		details map[string]string
	}{
		{
			func() {
				_, _ = alice.RestartRole(a.context(), &nodev1.RestartRoleRequest{Role: "lighthouse", DryRun: true})
			},
			"operator alice called RestartRole: OK", "lighthouse",
			map[string]string{"caller": "operator alice", "rpc": "RestartRole", "code": "OK", "request.role": "lighthouse", "request.dry_run": "true"},
		},
		{
			func() {
				invoke(viewer, nodev1.NodeService_RestartRole_FullMethodName, &nodev1.RestartRoleRequest{Role: "evil\n"}, &nodev1.RestartRoleResponse{})
			},
			"operator bob called RestartRole: PermissionDenied", "",
			map[string]string{"caller": "operator bob", "rpc": "RestartRole", "code": "PermissionDenied", "request.role": `evil\n`},
		},
		{
			func() {
				_, _ = a.client().ReplaceOwner(a.context(), &nodev1.ReplaceOwnerRequest{OwnerPublicKey: key})
			},
			me + " called ReplaceOwner: OK", "",
			map[string]string{"caller": me, "rpc": "ReplaceOwner", "code": "OK", "address": "local"},
		},
		{
			func() {
				stream, err := nodev1.NewNodeServiceClient(owner).ImportPlugin(a.context())
				if err != nil {
					t.Fatal(err)
				}
				_ = stream.Send(&nodev1.ImportPluginRequest{Data: []byte("ELF")})
				_, _ = stream.CloseAndRecv()
			},
			"owner called ImportPlugin: OK", "", map[string]string{"caller": "owner", "rpc": "ImportPlugin", "code": "OK"},
		},
		{
			func() {
				a.panics()
				stream, err := a.client().ImportPlugin(a.context())
				if err != nil {
					t.Fatal(err)
				}
				_, _ = stream.CloseAndRecv()
			},
			me + " called ImportPlugin: Internal", "", map[string]string{"caller": me, "rpc": "ImportPlugin", "code": "Internal", "address": "local"},
		},
		{
			func() {
				ended := nodev1.NewNodeServiceClient(a.remote(a.operator("mallory", oldID)))
				_, _ = ended.RecoverStore(a.context(), &nodev1.RecoverStoreRequest{})
			},
			"operator mallory called RecoverStore: Unauthenticated", "",
			map[string]string{"caller": "operator mallory", "rpc": "RecoverStore", "code": "Unauthenticated"},
		},
	} {
		last := a.watched(&nodev1.WatchEventsRequest{Tail: 1})[0].GetSequence()
		test.call()
		recorded := a.calls(last)
		if len(recorded) != 1 {
			t.Errorf("%s: recorded as %v", test.message, recorded)
			continue
		}
		call := recorded[0]
		if _, ok := test.details["address"]; !ok {
			test.details["address"] = call.GetDetails()["address"]
			if !strings.HasPrefix(call.GetDetails()["address"], "127.0.0.1:") {
				t.Errorf("%s: the address is %q", test.message, call.GetDetails()["address"])
			}
		}
		if call.GetType() != nodeapi.Call || call.GetMessage() != test.message || call.GetRole() != test.role || !maps.Equal(call.GetDetails(), test.details) {
			t.Errorf("recorded: %v, want %q, %v", call, test.message, test.details)
		}
		if done := test.details["code"] == "OK"; (call.GetSeverity() == nodev1.Severity_SEVERITY_INFO) != done {
			t.Errorf("%s: its severity is %v", test.message, call.GetSeverity())
		}
	}
	last := a.watched(&nodev1.WatchEventsRequest{Tail: 1})[0].GetSequence()
	if _, err := alice.GetStatus(a.context(), &nodev1.GetStatusRequest{}); err != nil {
		t.Fatal(err)
	}
	if recorded := a.calls(last); len(recorded) != 0 {
		t.Errorf("reading is recorded: %v", recorded)
	}
}

// Who may not call cannot push out of the journal what happened.
func TestRefusedCallsDoNotFillTheJournal(t *testing.T) {
	a := serve(t)
	a.everybody()
	viewer := nodev1.NewNodeServiceClient(a.remote(a.operator("bob", bobID)))
	for range 200 {
		if _, err := viewer.RestartRole(a.context(), &nodev1.RestartRoleRequest{Role: "x"}); status.Code(err) != codes.PermissionDenied {
			t.Fatal(err)
		}
	}
	if recorded := a.calls(1); len(recorded) < 20 || len(recorded) > 60 {
		t.Errorf("%d of 200 refused calls are recorded", len(recorded))
	}
	// Those who may are always recorded.
	alice := nodev1.NewNodeServiceClient(a.remote(a.operator("alice", aliceID)))
	last := a.watched(&nodev1.WatchEventsRequest{Tail: 1})[0].GetSequence()
	for range 50 {
		if _, err := alice.RestartRole(a.context(), &nodev1.RestartRoleRequest{Role: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	if recorded := a.calls(last); len(recorded) != 50 {
		t.Errorf("%d of 50 calls are recorded", len(recorded))
	}
}

// What a caller put around the server sees every call, also those that are refused.
func TestInterceptorsSeeEverything(t *testing.T) {
	a := serve(t)
	a.stop()
	seen := make(chan string, 10)
	config := a.config()
	config.Unary = []grpc.UnaryServerInterceptor{func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		answer, err := handler(ctx, request)
		seen <- filepath.Base(info.FullMethod) + " " + status.Code(err).String()
		return answer, err
	}}
	config.Stream = []grpc.StreamServerInterceptor{func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		err := handler(server, stream)
		seen <- filepath.Base(info.FullMethod) + " " + status.Code(err).String()
		return err
	}}
	server, err := nodeapi.New(config)
	if err != nil {
		t.Fatal(err)
	}
	a.server = server
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	a.everybody()
	viewer := nodev1.NewNodeServiceClient(a.remote(a.operator("bob", bobID)))
	_, _ = viewer.RestartRole(a.context(), &nodev1.RestartRoleRequest{Role: "x"})
	a.panics()
	if stream, err := a.client().ImportPlugin(a.context()); err == nil {
		_, _ = stream.CloseAndRecv()
	}
	for _, want := range []string{"RestartRole PermissionDenied", "ImportPlugin Internal"} {
		if got := <-seen; got != want {
			t.Errorf("seen: %q, want %q", got, want)
		}
	}
}
