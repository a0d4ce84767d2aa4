package service_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/consensus/internal/service"
	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/sdk/leaktest"
)

func TestMain(m *testing.M) { leaktest.VerifyTestMain(m) }

// reporter keeps what the role said last.
type reporter struct {
	mu   sync.Mutex
	said string
	ever []string
}

// all is what was said so far.
func (r *reporter) all() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.ever, "\n")
}

func (r *reporter) say(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = what
	r.ever = append(r.ever, what)
}

func (r *reporter) last() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.said
}

func (r *reporter) Ready()                 { r.say("ready") }
func (r *reporter) Degraded(reason string) { r.say("degraded: " + reason) }

// plugin is a running service and the core's client of it.
type plugin struct {
	consensusv1.ConsensusServiceClient
	service   *service.Service
	directory string
	reporter  *reporter
	stop      func() // stops the role; the connection stays
}

func start(t *testing.T, directory string) *plugin {
	t.Helper()
	return startWith(t, directory, storetest.Config(t, directory))
}

func startWith(t *testing.T, directory string, config store.Config) *plugin {
	t.Helper()
	s := service.New()
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	s.Register(server)
	socket := filepath.Join(directory, "plugin.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	connection, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	p := &plugin{ConsensusServiceClient: consensusv1.NewConsensusServiceClient(connection), service: s, directory: directory, reporter: &reporter{}}
	ctx, cancel := context.WithCancel(context.Background())
	var running, serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(listener); err != nil {
			t.Error(err)
		}
	})
	running.Go(func() {
		err := s.Run(ctx, service.Config{
			Log:              config.Log,
			DataDirectory:    config.Directory,
			RuntimeDirectory: config.RuntimeDirectory,
			Heartbeat:        config.Heartbeat,
			Election:         config.Election,
			Quota:            config.Quota,
			RoomInterval:     config.RoomInterval,
			PauseShare:       config.PauseShare,
			PulseInterval:    config.PulseInterval,
			Reporter:         p.reporter,
		})
		if err != nil {
			t.Error(err)
		}
	})
	p.stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(func() {
		p.stop()
		connection.Close()
		server.Stop()
		serving.Wait()
	})
	return p
}

func formNew() *consensusv1.FormRequest {
	return &consensusv1.FormRequest{ClusterId: "cluster-a", NodeId: "reeve-1", ClusterUser: "curator", How: &consensusv1.FormRequest_New{New: &consensusv1.FormNew{}}}
}

func formExisting() *consensusv1.FormRequest {
	request := formNew()
	request.How = &consensusv1.FormRequest_Existing{Existing: &consensusv1.FormExisting{}}
	return request
}

// problem returns the kind of the FormProblem that an error carries.
func problem(err error) consensusv1.FormProblemKind {
	for _, detail := range status.Convert(err).Details() {
		if problem, ok := detail.(*consensusv1.FormProblem); ok && status.Code(err) == codes.FailedPrecondition {
			return problem.Kind
		}
	}
	return consensusv1.FormProblemKind_FORM_PROBLEM_KIND_UNSPECIFIED
}

func TestFormIsIdempotent(t *testing.T) {
	p := start(t, storetest.Directory(t))
	ctx := storetest.Context(t)

	// A caller that gives up leaves the work to those that ask after it.
	early, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	if _, err := p.Form(early, formNew()); status.Code(err) != codes.DeadlineExceeded {
		t.Logf("the early call: %v", err) // on a fast machine it may well have succeeded
	}
	const callers = 8
	members := make([]string, callers)
	var group sync.WaitGroup
	for n := range callers {
		group.Go(func() {
			answer, err := p.Form(ctx, formNew())
			if err != nil {
				t.Error(err)
				return
			}
			members[n] = answer.MemberId
		})
	}
	group.Wait()
	for _, member := range members {
		if member == "" || member != members[0] {
			t.Fatalf("the callers were given %v, want one member", members)
		}
	}
	if answer, err := p.Form(ctx, formExisting()); err != nil || answer.MemberId != members[0] {
		t.Errorf("the formed store as an existing one: %v, %v", answer, err)
	}
	for name, change := range map[string]func(*consensusv1.FormRequest){
		"cluster": func(r *consensusv1.FormRequest) { r.ClusterId = "cluster-b" },
		"node":    func(r *consensusv1.FormRequest) { r.NodeId = "reeve-2" },
		"user":    func(r *consensusv1.FormRequest) { r.ClusterUser = "other" },
	} {
		request := formNew()
		change(request)
		if _, err := p.Form(ctx, request); problem(err) != consensusv1.FormProblemKind_FORM_PROBLEM_KIND_ALREADY_FORMED {
			t.Errorf("another %s: %v, want ALREADY_FORMED", name, err)
		}
	}
}

func TestFormRefuses(t *testing.T) {
	p := start(t, storetest.Directory(t))
	ctx := storetest.Context(t)
	for name, request := range map[string]*consensusv1.FormRequest{
		"nothing":    {},
		"no how":     {ClusterId: "c", NodeId: "n", ClusterUser: "u"},
		"no user":    {ClusterId: "c", NodeId: "n", How: formNew().How},
		"user root":  {ClusterId: "c", NodeId: "n", ClusterUser: "root", How: formNew().How},
		"bad user":   {ClusterId: "c", NodeId: "n", ClusterUser: "../x", How: formNew().How},
		"no cluster": {NodeId: "n", ClusterUser: "u", How: formNew().How},
		"no node":    {ClusterId: "c", ClusterUser: "u", How: formNew().How},
	} {
		if _, err := p.Form(ctx, request); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v, want InvalidArgument", name, err)
		}
	}
	_, err := p.Form(ctx, formExisting())
	if problem(err) != consensusv1.FormProblemKind_FORM_PROBLEM_KIND_STORE_MISSING || !strings.Contains(err.Error(), p.directory) {
		t.Errorf("existing without data: %v, want STORE_MISSING and the directory", err)
	}
	// The refusal leaves the instance ready for another try.
	if _, err := p.Form(ctx, formNew()); err != nil {
		t.Errorf("new after the refusal: %v", err)
	}
}

func TestFormAfterTheDataIsGone(t *testing.T) {
	directory := storetest.Directory(t)
	first := start(t, directory)
	ctx := storetest.Context(t)
	if _, err := first.Form(ctx, formNew()); err != nil {
		t.Fatal(err)
	}
	first.stop()
	if err := os.RemoveAll(filepath.Join(directory, "data", "etcd")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(directory, "plugin.sock")); err != nil {
		t.Fatal(err)
	}
	second := start(t, directory)
	for _, request := range []*consensusv1.FormRequest{formExisting(), formNew()} {
		if _, err := second.Form(ctx, request); problem(err) != consensusv1.FormProblemKind_FORM_PROBLEM_KIND_STORE_MISSING {
			t.Errorf("%T: %v, want STORE_MISSING", request.How, err)
		}
	}
}

// follower keeps the last message of WatchStore.
type follower struct {
	stream  grpc.ServerStreamingClient[consensusv1.WatchStoreResponse]
	t       *testing.T
	current *consensusv1.StoreStatus
}

func follow(t *testing.T, p *plugin) *follower {
	t.Helper()
	stream, err := p.WatchStore(storetest.Context(t), &consensusv1.WatchStoreRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return &follower{stream: stream, t: t}
}

// until reads on until a message fits.
func (f *follower) until(what string, fits func(*consensusv1.StoreStatus) bool) *consensusv1.StoreStatus {
	f.t.Helper()
	for f.current == nil || !fits(f.current) {
		message, err := f.stream.Recv()
		if err != nil {
			f.t.Fatalf("%s: %v; the last status: %v", what, err, f.current)
		}
		f.current = message.Status
	}
	return f.current
}

func state(status *consensusv1.StoreStatus, instance *consensusv1.AccessInstance) consensusv1.AccessState {
	for _, access := range status.Access {
		if access.InstanceId == instance.InstanceId {
			return access.State
		}
	}
	return consensusv1.AccessState_ACCESS_STATE_UNSPECIFIED
}

func (p *plugin) instance(t *testing.T, name, user string) *consensusv1.AccessInstance {
	return &consensusv1.AccessInstance{
		InstanceId:    "reeve-1/" + name,
		ConsensusUser: user,
		Socket:        filepath.Join(storetest.Mkdir(t, p.directory, "access", name), "consensus.sock"),
		Uid:           uint32(os.Getuid()),
	}
}

// grant is what the cluster API does when the users of the store are to be these.
func grant(t *testing.T, curator *consensusv1.AccessInstance, users ...string) {
	t.Helper()
	desired := &consensusv1.DesiredState{Members: []string{"reeve-1"}}
	for _, user := range users {
		desired.Users = append(desired.Users, &consensusv1.DesiredUser{ConsensusUser: user})
	}
	content, err := proto.Marshal(desired)
	if err != nil {
		t.Fatal(err)
	}
	client := storetest.Dial(t, curator.Socket)
	defer client.Close()
	if _, err := client.Put(storetest.Context(t), consensusv1.UserPrefix("curator")+consensusv1.DesiredStateKey, string(content)); err != nil {
		t.Fatal(err)
	}
}

// TestTheWholeWay is what happens on a node: the core opens the cluster API's instance, which grants another role its user, and withdraws it.
func TestTheWholeWay(t *testing.T) {
	p := start(t, storetest.Directory(t))
	ctx := storetest.Context(t)
	f := follow(t, p)
	if first := f.until("the first message", func(*consensusv1.StoreStatus) bool { return true }); first.Formed {
		t.Errorf("before Form: %v", first)
	}
	curator, lighthouse := p.instance(t, "curator.1", "curator"), p.instance(t, "lighthouse.1", "lighthouse")
	set := &consensusv1.SetAccessRequest{CoreStart: 7, Number: 1, Instances: []*consensusv1.AccessInstance{curator, lighthouse}}
	if _, err := p.SetAccess(ctx, set); err != nil {
		t.Fatal(err)
	}
	f.until("waiting before Form", func(s *consensusv1.StoreStatus) bool {
		return s.AccessNumber == 1 && s.CoreStart == 7 && state(s, curator) == consensusv1.AccessState_ACCESS_STATE_WAITING
	})
	if p.reporter.last() != "" {
		t.Errorf("before Form the role says that it is %s", p.reporter.last())
	}
	formed, err := p.Form(ctx, formNew())
	if err != nil {
		t.Fatal(err)
	}
	// Whether it has a quorum is looked at now and then: a machine that stands still for a moment has none in between.
	now := f.until("open after Form", func(s *consensusv1.StoreStatus) bool {
		return s.Formed && state(s, curator) == consensusv1.AccessState_ACCESS_STATE_OPEN && s.Quorum
	})
	if now.ClusterId != "cluster-a" || now.MemberId != formed.MemberId || now.LeaderId != now.MemberId || !now.Voter ||
		now.DatabaseSize == 0 || len(now.Members) != 1 || now.Members[0].Name != "reeve-1" {
		t.Errorf("the status is %v", now)
	}
	if got := state(now, lighthouse); got != consensusv1.AccessState_ACCESS_STATE_WAITING {
		t.Errorf("an instance whose user is not granted yet is %s", got)
	}
	storetest.Eventually(t, "ready", func() bool { return p.reporter.last() == "ready" })

	grant(t, curator, "lighthouse")
	f.until("open after the grant", func(s *consensusv1.StoreStatus) bool {
		return state(s, lighthouse) == consensusv1.AccessState_ACCESS_STATE_OPEN
	})
	client := storetest.Dial(t, lighthouse.Socket)
	if _, err := client.Put(ctx, "/reeve/users/lighthouse/count", "1"); err != nil {
		t.Fatal(err)
	}
	grant(t, curator)
	f.until("waiting after the withdrawal", func(s *consensusv1.StoreStatus) bool {
		return state(s, lighthouse) == consensusv1.AccessState_ACCESS_STATE_WAITING
	})
	if _, err := os.Lstat(lighthouse.Socket); err == nil {
		t.Error("the socket outlived the grant")
	}

	for name, c := range map[string]struct {
		set  *consensusv1.SetAccessRequest
		want codes.Code
	}{
		"older number": {&consensusv1.SetAccessRequest{CoreStart: 7}, codes.Aborted},
		"older core":   {&consensusv1.SetAccessRequest{CoreStart: 6, Number: 9}, codes.Aborted},
		"not valid":    {&consensusv1.SetAccessRequest{CoreStart: 7, Number: 9, Instances: []*consensusv1.AccessInstance{{}}}, codes.InvalidArgument},
	} {
		if _, err := p.SetAccess(ctx, c.set); status.Code(err) != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}

	p.stop()
	var last error
	for last == nil {
		_, last = f.stream.Recv()
	}
	if status.Code(last) != codes.Unavailable {
		t.Errorf("WatchStore of a stopped role: %v, want Unavailable", last)
	}
	if _, err := os.Lstat(curator.Socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a socket outlived the role: %v", err)
	}
}

// TestStopBeforeForm stops a role that was never formed, with a call that waits.
func TestStopBeforeForm(t *testing.T) {
	p := start(t, storetest.Directory(t))
	f := follow(t, p)
	f.until("the first message", func(*consensusv1.StoreStatus) bool { return true })
	p.stop()
	if _, err := f.stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("WatchStore: %v, want Unavailable", err)
	}
	if _, err := p.Form(storetest.Context(t), formNew()); status.Code(err) != codes.Unavailable {
		t.Errorf("Form: %v, want Unavailable", err)
	}
}
