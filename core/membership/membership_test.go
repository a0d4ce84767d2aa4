package membership

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/enrol"
	"github.com/reeveproject/reeve/core/identity"
	"github.com/reeveproject/reeve/core/roles"
	"github.com/reeveproject/reeve/core/seal"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/sdk/event"
	"github.com/reeveproject/reeve/sdk/leaktest"
)

func TestMain(m *testing.M) { leaktest.VerifyTestMain(m) }

// TestTransitions tries every pair of states.
func TestTransitions(t *testing.T) {
	allowed := map[string]bool{
		"Unknown Bootstrapping": true, "Bootstrapping Home": true,
		"Unknown Foreign": true, "Foreign Trusted": true, "Trusted Home": true,
		"Unknown Split": true, "Split Home": true, "Home Split": true,
		"Home Disowning": true, "Split Disowning": true,
		// A node that is stopped while it commits, and one that the cluster removes before it was a member, or whose core ends while it wipes.
		"Unknown Trusted": true, "Unknown Disowning": true, "Foreign Disowning": true, "Trusted Disowning": true,
	}
	states := []State{Unknown, Bootstrapping, Foreign, Trusted, Home, Split, Disowning}
	for _, from := range states {
		for _, to := range states {
			m := machine{now: time.Now}
			m.status.Set(Status{State: from, Reason: "before"})
			err := m.to(to, "after")
			got, _ := m.status.Get()
			want := from == to || allowed[Name(from)+" "+Name(to)]
			if want && (err != nil || got.State != to || got.Reason != "after") {
				t.Errorf("%s to %s: %v, %+v", Name(from), Name(to), err, got)
			}
			var refused *TransitionError
			if !want && (!errors.As(err, &refused) || got.State != from || got.Reason != "before") {
				t.Errorf("%s to %s was not refused: %v, %+v", Name(from), Name(to), err, got)
			}
		}
	}
}

func TestGetHome(t *testing.T) {
	status := event.New(Status{State: Split})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := GetHome(ctx, status); !errors.Is(err, context.Canceled) {
		t.Errorf("while Split: %v", err)
	}
	status.Set(Status{State: Home, NodeID: "n"})
	if s, err := GetHome(t.Context(), status); err != nil || s.NodeID != "n" {
		t.Errorf("Home: %+v, %v", s, err)
	}
	status.Set(Status{State: Disowning, NodeID: "n", Reason: "removed by the owner"})
	var disowned *DisowningError
	if _, err := GetHome(t.Context(), status); !errors.As(err, &disowned) || disowned.Reason != "removed by the owner" {
		t.Errorf("Disowning: %v", err)
	}
}

// provider is both of the roles that make a cluster. It counts what it is asked, and answers as the test says.
type provider struct {
	mu         sync.Mutex
	forms      []*consensusv1.FormRequest
	bootstraps int
	// restores are those of the bootstraps that restored a cluster.
	restores  int
	formed    func(*consensusv1.FormRequest) error
	bootstrap func() error
}

func (p *provider) Invoke(_ context.Context, method string, args, reply any, _ ...grpc.CallOption) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch method {
	case consensusv1.ConsensusService_Form_FullMethodName:
		request := args.(*consensusv1.FormRequest)
		p.forms = append(p.forms, request)
		if p.formed != nil {
			return p.formed(request)
		}
		return nil
	case clusterv1.BootstrapService_Bootstrap_FullMethodName, clusterv1.BootstrapService_Restore_FullMethodName:
		p.bootstraps++
		if method == clusterv1.BootstrapService_Restore_FullMethodName {
			p.restores++
		}
		if p.bootstrap != nil {
			if err := p.bootstrap(); err != nil {
				return err
			}
		}
		switch response := reply.(type) {
		case *clusterv1.BootstrapResponse:
			response.CaCertificates, response.NodeSvid = [][]byte{{1}}, [][]byte{{2}}
		case *clusterv1.RestoreResponse:
			response.CaCertificates, response.NodeSvid = [][]byte{{1}}, [][]byte{{2}}
		}
		return nil
	}
	return status.Error(codes.Unimplemented, method)
}

func (p *provider) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, status.Error(codes.Unimplemented, "no streams")
}

// bench is a room and everything around it.
type bench struct {
	room   *Room
	sealed *seal.Store
	// configuration is what it holds, and is changed by one goroutine.
	configuration seal.Configuration
	capabilities  event.Value[roles.Capabilities]
	contact       event.Value[Contact]
	identity      event.Value[*identity.Identity]
	// ahead is by how much the machine's clock is ahead of the bubble's, which begins in 2000.
	ahead atomic.Int64
	stop  func()
	// kept is called with each configuration that was kept; nil: nothing is.
	kept func(*seal.Configuration) error
}

// setClock has the machine's clock show a time.
func (b *bench) setClock(at time.Time) { b.ahead.Store(int64(time.Until(at))) }

func newBench(t *testing.T, path string, phase seal.Phase) *bench {
	t.Helper()
	return newBenchWith(t, path, phase, func(*Config) {})
}

func newBenchWith(t *testing.T, path string, phase seal.Phase, change func(*Config)) *bench {
	t.Helper()
	b := &bench{sealed: seal.NewStore(path, seal.File{})}
	configuration := seal.Configuration{
		ClusterID: "c1", NodeKey: ed25519.NewKeyFromSeed(make([]byte, 32)), JoinKey: ed25519.NewKeyFromSeed(make([]byte, 32)), Owner: make([]byte, 32),
		VolumeKind: "plain", Phase: phase, StoreFormed: !phase.Before(seal.Formed),
	}
	if err := b.sealed.Save(t.Context(), &configuration); err != nil {
		t.Fatal(err)
	}
	b.configuration = configuration
	b.identity.Set(&identity.Identity{NodeID: "n1", ClusterID: "c1", TrustDomain: "c1.reeve"})
	config := Config{
		Log: hclog.NewNullLogger(), Update: b.update, Configuration: configuration, Identity: &b.identity, Capabilities: &b.capabilities, Contact: &b.contact,
		ClusterUser: func() string { return "curator" }, Bootstrap: &clusterv1.BootstrapRequest{ClusterId: "c1"},
		Now:      func() time.Time { return time.Now().Add(time.Duration(b.ahead.Load())) },
		Curators: new(event.Value[[]string]), StoreLeft: new(event.Value[bool]), Removed: new(event.Value[*enrol.RemovedError]),
	}
	change(&config)
	b.room = New(config)
	b.setClock(time.Date(2030, time.January, 1, 0, 0, 0, 0, time.UTC))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := b.room.Run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
	}()
	// The identity room, in short.
	keeper := make(chan struct{})
	go func() {
		defer close(keeper)
		if _, err := b.room.Credentials().Watch().Next(ctx); err == nil {
			b.identity.Set(&identity.Identity{NodeID: "n1", ClusterID: "c1", TrustDomain: "c1.reeve", CA: nonEmptyCA, SVID: someSVID})
		}
	}()
	b.stop = func() {
		cancel()
		<-done
		<-keeper
	}
	return b
}

// update changes the sealed configuration, of which others may have changed something meanwhile.
func (b *bench) update(ctx context.Context, change func(*seal.Configuration)) error {
	next := b.configuration
	change(&next)
	if err := b.sealed.Save(ctx, &next); err != nil {
		return err
	}
	b.configuration = next
	if b.kept != nil {
		return b.kept(&next)
	}
	return nil
}

func (b *bench) phase(t *testing.T) seal.Phase {
	t.Helper()
	c, err := b.sealed.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c.Phase
}

func (b *bench) expect(t *testing.T, state State, reason string) {
	t.Helper()
	synctest.Wait()
	if s, _ := b.room.Status().Get(); s.State != state || !strings.Contains(s.Reason, reason) {
		t.Errorf("membership %s (%s), want %s (…%s…)", Name(s.State), s.Reason, Name(state), reason)
	}
}

func TestBootstrap(t *testing.T) {
	path := filepath.Join(t.TempDir(), "configuration.json")
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, path, seal.Forming)
		defer b.stop()
		b.expect(t, Bootstrapping, "forming the consensus store")
		p := &provider{}
		b.capabilities.Set(roles.Capabilities{roles.CapabilityConsensus: {InstanceID: "n1/store/1", Role: "store", Conn: p}})
		b.expect(t, Bootstrapping, "waiting for the cluster API")
		if got := b.phase(t); got != seal.Formed {
			t.Errorf("phase %s after the store was formed", got)
		}
		if len(p.forms) != 1 || p.forms[0].GetNew() == nil || p.forms[0].GetClusterUser() != "curator" || p.forms[0].GetClusterId() != "c1" {
			t.Errorf("forms: %v", p.forms)
		}
		fails := 2
		p.bootstrap = func() error {
			if fails--; fails >= 0 {
				return status.Error(codes.Unavailable, "not yet")
			}
			return nil
		}
		b.capabilities.Set(roles.Capabilities{
			roles.CapabilityConsensus: {InstanceID: "n1/store/1", Role: "store", Conn: p}, roles.CapabilityCluster: {InstanceID: "n1/api/1", Role: "api", Conn: p},
		})
		time.Sleep(time.Minute) // of the bubble's clock: the back-off between attempts
		b.expect(t, Bootstrapping, "first contact")
		if got := b.phase(t); got != seal.Member || p.bootstraps != 3 {
			t.Errorf("phase %s after %d bootstraps", got, p.bootstraps)
		}
		b.contact.Set(Contact{OK: true})
		b.expect(t, Home, "member")
		b.contact.Set(Contact{Reason: "the curator does not answer"})
		b.expect(t, Split, "the curator does not answer")
		b.contact.Set(Contact{OK: true})
		b.expect(t, Home, "member")
		// A store that starts again is opened, never made.
		b.capabilities.Set(roles.Capabilities{roles.CapabilityConsensus: {InstanceID: "n1/store/2", Role: "store", Conn: p}})
		synctest.Wait()
		if len(p.forms) != 2 || p.forms[1].GetExisting() == nil {
			t.Errorf("forms: %v", p.forms)
		}
	})
}

// A disk that does not take the node's progress keeps the node waiting, which it says, and not from ever coming up.
func TestProgressThatCannotBeKept(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "system")
	if err := os.Mkdir(directory, 0o700); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, filepath.Join(directory, "configuration.json"), seal.Forming)
		defer b.stop()
		move := func(from, to string) {
			t.Helper()
			if err := os.Rename(from, to); err != nil {
				t.Fatal(err)
			}
		}
		b.expect(t, Bootstrapping, "forming the consensus store")
		move(directory, directory+".away")
		p := &provider{}
		b.capabilities.Set(roles.Capabilities{roles.CapabilityConsensus: {InstanceID: "n1/store/1", Role: "store", Conn: p}})
		time.Sleep(time.Minute)
		b.expect(t, Bootstrapping, "the node's progress (formed) cannot be kept")
		b.expect(t, Bootstrapping, directory)
		if now, _ := b.room.Phase().Get(); now != seal.Forming {
			t.Errorf("phase %s", now)
		}
		move(directory+".away", directory)
		time.Sleep(rewrite)
		b.expect(t, Bootstrapping, "waiting for the cluster API")
		if got := b.phase(t); got != seal.Formed {
			t.Errorf("phase %s", got)
		}
	})
}

func TestMemberNeverFormsAnew(t *testing.T) {
	for _, phase := range []seal.Phase{seal.Formed, seal.Member} {
		path := filepath.Join(t.TempDir(), "configuration.json")
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, path, phase)
			defer b.stop()
			problem, err := status.New(codes.FailedPrecondition, "no").WithDetails(&consensusv1.FormProblem{
				Kind: consensusv1.FormProblemKind_FORM_PROBLEM_KIND_STORE_MISSING, Message: "the store is missing in /somewhere",
			})
			if err != nil {
				t.Fatal(err)
			}
			p := &provider{formed: func(r *consensusv1.FormRequest) error {
				if r.GetNew() != nil {
					return errors.New("asked to form anew")
				}
				return problem.Err()
			}}
			b.contact.Set(Contact{Reason: "no curator yet"})
			b.capabilities.Set(roles.Capabilities{roles.CapabilityConsensus: {InstanceID: "n1/store/1", Role: "store", Conn: p}})
			time.Sleep(time.Minute)
			synctest.Wait()
			got, _ := b.room.Problem().Get()
			if got == nil || got.Role != "store" || !strings.Contains(got.Message, "/somewhere") {
				t.Fatalf("problem: %+v", got)
			}
			// A member of a cluster may come back by the others; who makes one has none.
			out := regexp.MustCompile("`reeve node role remove n1 store`.* wait .*`reeve node role add n1 store`")
			if out.MatchString(got.Message) != (phase == seal.Member) {
				t.Errorf("the way out: %q", got.Message)
			}
			for i, form := range p.forms {
				if form.GetNew() != nil {
					t.Errorf("call %d asks for a new store", i)
				}
			}
			if phase == seal.Member {
				b.expect(t, Split, "the store is missing in /somewhere")
			}
		})
	}
}

func TestForeignStoreOfAnOlderCluster(t *testing.T) {
	path := filepath.Join(t.TempDir(), "configuration.json")
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, path, seal.Formed)
		defer b.stop()
		p := &provider{bootstrap: func() error {
			return status.Error(codes.AlreadyExists, fmt.Sprintf("cluster %s is there already", "c0"))
		}}
		b.capabilities.Set(roles.Capabilities{
			roles.CapabilityConsensus: {InstanceID: "n1/store/1", Role: "store", Conn: p}, roles.CapabilityCluster: {InstanceID: "n1/api/1", Role: "api", Conn: p},
		})
		b.expect(t, Bootstrapping, "cluster c0 is there already")
		if got := b.phase(t); got != seal.Formed {
			t.Errorf("phase %s", got)
		}
	})
}

// What is wrong although the cluster is in reach is to be seen where people look.
func TestHomeSaysWhatIsWrong(t *testing.T) {
	path := filepath.Join(t.TempDir(), "configuration.json")
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, path, seal.Member)
		defer b.stop()
		for _, step := range []struct {
			contact Contact
			state   State
			reason  string
		}{
			{Contact{OK: true}, Home, "member of the cluster"},
			{Contact{OK: true, Reason: "the cluster does not take what this node reports"}, Home, "the cluster does not take what this node reports"},
			{Contact{OK: true}, Home, "member of the cluster"},
			{Contact{Reason: "gone"}, Split, "gone"},
		} {
			b.contact.Set(step.contact)
			synctest.Wait()
			b.expect(t, step.state, step.reason)
		}
	})
}
