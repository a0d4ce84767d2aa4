package membership

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/identity"
	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/roles"
	"github.com/reeveproject/reeve/core/seal"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// office is the cluster's EnrolmentService, which outlives the node's cores.
type office struct {
	mu        sync.Mutex
	registers int
	commits   [][]byte
	// failing is what every call answers; nil: they do what they are for.
	failing error
	state   event.Value[clusterv1.NodeState]
}

func (o *office) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failing = err
}

func (o *office) Register(_ context.Context, request *clusterv1.RegisterRequest) (*clusterv1.RegisterResponse, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failing != nil {
		return nil, o.failing
	}
	if request.GetTicketId() != "t1" || !bytes.Equal(request.GetTicketSecret(), bytes.Repeat([]byte{7}, 32)) || request.GetVersion() != "1.2.3" {
		return nil, &RefusedError{Err: errors.New("no such ticket")}
	}
	if o.registers++; o.registers == 1 {
		o.state.Set(clusterv1.NodeState_NODE_STATE_NEW)
	}
	return &clusterv1.RegisterResponse{Node: &clusterv1.NodeRecord{Id: "n1"}}, nil
}

func (o *office) Await(ctx context.Context, tell func(*clusterv1.AwaitResponse)) error {
	states := o.state.Watch()
	for {
		o.mu.Lock()
		failing := o.failing
		o.mu.Unlock()
		if failing != nil {
			return failing
		}
		state, err := states.Next(ctx)
		if err != nil {
			return err
		}
		tell(&clusterv1.AwaitResponse{State: state, Curators: []string{"192.0.2.2:7400"}})
	}
}

func (o *office) Commit(_ context.Context, request *clusterv1.CommitRequest) (*clusterv1.CommitResponse, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.failing != nil:
		return nil, o.failing
	case request.GetIncarnation().GetNumber() == 0:
		return nil, errors.New("no incarnation")
	case len(o.commits) > 0 && !bytes.Equal(o.commits[0], request.GetCuk()):
		return nil, &RefusedError{Err: errors.New("another CUK is known")}
	}
	o.commits = append(o.commits, bytes.Clone(request.GetCuk()))
	o.state.Set(clusterv1.NodeState_NODE_STATE_UP)
	return &clusterv1.CommitResponse{
		Node: &clusterv1.NodeRecord{Id: "n1"}, CaCertificates: [][]byte{{1}}, NodeSvid: [][]byte{{2}}, OwnerPublicKey: bytes.Repeat([]byte{3}, 32),
		Curators: []string{"192.0.2.3:7400"}, ClusterUser: "api-user",
	}, nil
}

// newcomer is a machine that comes into the cluster of an office. Its sealed configuration outlives its cores.
type newcomer struct {
	*bench
	office *office
	// stopAfter is how many changes of the sealed configuration the core survives, and whether it is killed before or after the last one is on the disk.
	stopAfter int
	onDisk    bool
	kept      []string
	removed   string
	killed    bool
}

var errKilled = errors.New("killed by the test")

func newNewcomer(t *testing.T, path string) *newcomer {
	t.Helper()
	cuk, err := keys.SecretOf(bytes.Repeat([]byte{5}, 32))
	if err != nil {
		t.Fatal(err)
	}
	secret, err := keys.SecretOf(bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	n := &newcomer{bench: &bench{sealed: seal.NewStore(path, seal.File{})}, office: &office{}, stopAfter: -1}
	n.configuration = seal.Configuration{
		ClusterID: "c1", NodeKey: ed25519.NewKeyFromSeed(make([]byte, 32)), JoinKey: ed25519.NewKeyFromSeed(make([]byte, 32)),
		VolumeKind: "plain", Phase: seal.Registering, CUK: cuk, Ticket: secret,
		Registration: &seal.Registration{TicketID: "t1", CAPins: [][]byte{{9}}, Curators: []string{"192.0.2.1:7400"}},
	}
	if err := n.sealed.Save(t.Context(), &n.configuration); err != nil {
		t.Fatal(err)
	}
	return n
}

// start is a new core.
func (n *newcomer) start(t *testing.T, ctx context.Context) {
	t.Helper()
	c, err := n.sealed.Load(ctx)
	if err != nil {
		t.Fatal(err)
	}
	n.configuration, n.killed = *c, false
	n.capabilities, n.contact, n.identity = event.Value[roles.Capabilities]{}, event.Value[Contact]{}, event.Value[*identity.Identity]{}
	id := &identity.Identity{NodeID: "n1", ClusterID: "c1", TrustDomain: "c1.reeve", Key: c.NodeKey}
	if c.Phase == seal.Member {
		id.CA, id.SVID = nonEmptyCA, someSVID
	}
	n.identity.Set(id)
	use := func(secret *keys.Secret) func(func([]byte) error) error {
		return func(use func([]byte) error) error { return secret.Use(use) }
	}
	given := *c
	given.CUK, given.Ticket = nil, nil
	n.room = New(Config{
		Log: hclog.NewNullLogger(), Configuration: given, Identity: &n.identity, Capabilities: &n.capabilities, Contact: &n.contact,
		ClusterUser: func() string { return "api-user" },
		Update: func(ctx context.Context, change func(*seal.Configuration)) error {
			if n.killed || n.stopAfter == 0 && !n.onDisk {
				n.killed = true
				return errKilled
			}
			if err := n.update(ctx, change); err != nil {
				return err
			}
			if n.stopAfter--; n.stopAfter == -1 {
				n.killed = true
				return errKilled
			}
			return nil
		},
		Enrol: &Enrol{
			Enrolment: n.office, Request: func() *clusterv1.RegisterRequest { return &clusterv1.RegisterRequest{Version: "1.2.3"} },
			UseTicket: use(c.Ticket), UseCUK: use(c.CUK),
			Incarnation: func() (*clusterv1.Incarnation, error) { return &clusterv1.Incarnation{Number: 1}, nil },
			Keep: func(answer *clusterv1.CommitResponse) error {
				n.kept = append(n.kept, answer.GetClusterUser())
				return nil
			},
		},
		Disown: func(reason string) error { n.removed = reason; return nil },
	})
	ctx, cancel := context.WithCancel(ctx)
	done, keeper := make(chan struct{}), make(chan struct{})
	room := n.room
	go func() {
		defer close(done)
		if err := room.Run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
	}()
	go func() {
		defer close(keeper)
		if _, err := room.Credentials().Watch().Next(ctx); err == nil {
			n.identity.Set(&identity.Identity{NodeID: "n1", ClusterID: "c1", TrustDomain: "c1.reeve", Key: c.NodeKey, CA: nonEmptyCA, SVID: someSVID})
		}
	}()
	n.stop = func() {
		cancel()
		<-done
		<-keeper
	}
}

func (n *newcomer) loaded(t *testing.T) *seal.Configuration {
	t.Helper()
	c, err := n.sealed.Load(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A machine comes into a cluster: each step is on the disk before the next begins, and nothing is forgotten before the cluster has it.
func TestEnrol(t *testing.T) {
	path := filepath.Join(t.TempDir(), "configuration.json")
	synctest.Test(t, func(t *testing.T) {
		n := newNewcomer(t, path)
		n.office.fail(errors.New("no curator answers at 192.0.2.1:7400"))
		n.start(t, t.Context())
		defer func() { n.stop() }()
		time.Sleep(time.Minute)
		n.expect(t, Unknown, "no curator answers")
		if c := n.loaded(t); c.Phase != seal.Registering || c.Ticket == nil {
			t.Errorf("%+v", c)
		}
		n.office.fail(nil)
		time.Sleep(time.Minute)
		n.expect(t, Foreign, "`reeve node approve n1`")
		n.expect(t, Foreign, "SHA256:E545Q")
		c := n.loaded(t)
		if c.Phase != seal.Registered || c.Ticket != nil || c.CUK == nil || c.Registration.Curators[0] != "192.0.2.2:7400" {
			t.Errorf("%+v", c)
		}
		// A restart asks for no ticket, and a curator that is gone is only told of.
		n.stop()
		n.office.fail(errors.New("no curator answers"))
		n.start(t, t.Context())
		time.Sleep(time.Second)
		n.expect(t, Foreign, "no curator answers")
		n.expect(t, Foreign, "reeve node approve")
		n.office.fail(nil)
		time.Sleep(time.Minute)
		if n.office.registers != 1 {
			t.Errorf("registered %d times", n.office.registers)
		}
		n.office.state.Set(clusterv1.NodeState_NODE_STATE_STANDBY)
		time.Sleep(time.Minute)
		n.expect(t, Trusted, "first contact")
		c = n.loaded(t)
		if c.Phase != seal.Member || c.CUK != nil || len(c.Owner) != 32 || bytes.Equal(c.Registration.CAPins[0], []byte{9}) || c.Registration.Curators[0] != "192.0.2.3:7400" || c.StoreFormed {
			t.Errorf("%+v", c)
		}
		if fmt.Sprint(n.kept) != "[api-user]" || len(n.office.commits) != 1 || !bytes.Equal(n.office.commits[0], bytes.Repeat([]byte{5}, 32)) {
			t.Errorf("kept %v, committed %x", n.kept, n.office.commits)
		}
		n.contact.Set(Contact{Reason: "not yet"})
		n.expect(t, Trusted, "not yet")
		n.contact.Set(Contact{OK: true})
		n.expect(t, Home, "member of the cluster")
		n.stop()
		n.start(t, t.Context())
		n.expect(t, Split, "no contact to the cluster yet")
		n.contact.Set(Contact{OK: true})
		n.expect(t, Home, "member of the cluster")
	})
}

// The core is killed before and after each change of the sealed configuration. The next one goes on, and the cluster sees one node with one half of a key.
func TestEnrolIsKilled(t *testing.T) {
	for _, onDisk := range []bool{false, true} {
		for after := range 8 {
			t.Run(fmt.Sprintf("%d on disk %t", after, onDisk), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "configuration.json")
				synctest.Test(t, func(t *testing.T) {
					n := newNewcomer(t, path)
					n.stopAfter, n.onDisk = after, onDisk
					n.start(t, t.Context())
					defer func() { n.stop() }()
					go func() {
						if _, err := n.office.state.Wait(t.Context(), func(s clusterv1.NodeState) bool { return s == clusterv1.NodeState_NODE_STATE_NEW }); err == nil {
							n.office.state.Set(clusterv1.NodeState_NODE_STATE_STANDBY)
						}
					}()
					time.Sleep(time.Minute)
					synctest.Wait()
					if n.killed {
						n.stop()
						n.stopAfter = -1
						n.start(t, t.Context())
						time.Sleep(time.Minute)
						synctest.Wait()
					}
					n.contact.Set(Contact{OK: true})
					n.expect(t, Home, "member of the cluster")
					if c := n.loaded(t); c.Phase != seal.Member || c.CUK != nil || c.Ticket != nil || len(n.office.commits) == 0 || len(n.kept) == 0 {
						t.Errorf("%+v after %d commits", c, len(n.office.commits))
					}
				})
			})
		}
	}
}

// What the cluster refuses is said, and asked again now and then.
func TestEnrolIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "configuration.json")
	synctest.Test(t, func(t *testing.T) {
		n := newNewcomer(t, path)
		n.office.fail(&RefusedError{Err: errors.New("the ticket has expired")})
		n.start(t, t.Context())
		defer n.stop()
		time.Sleep(time.Hour)
		n.expect(t, Unknown, "the cluster refuses: the ticket has expired")
		n.office.fail(nil)
		time.Sleep(2 * time.Minute)
		n.expect(t, Foreign, "reeve node approve")
	})
}

// A node that the cluster removes is never anything else again, whatever it was.
func TestRemoved(t *testing.T) {
	gone := &RemovedError{NodeID: "n1", Reason: "removed by owner at noon"}
	for _, state := range []clusterv1.NodeState{clusterv1.NodeState_NODE_STATE_UNSPECIFIED, clusterv1.NodeState_NODE_STATE_NEW} {
		t.Run(state.String(), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "configuration.json")
			synctest.Test(t, func(t *testing.T) {
				n := newNewcomer(t, path)
				if state == clusterv1.NodeState_NODE_STATE_UNSPECIFIED {
					n.office.fail(gone)
				}
				n.start(t, t.Context())
				defer n.stop()
				time.Sleep(time.Second)
				if state == clusterv1.NodeState_NODE_STATE_NEW {
					n.expect(t, Foreign, "")
					n.office.fail(gone)
					n.office.state.Set(state)
				}
				n.expect(t, Disowning, "removed by owner at noon")
				n.contact.Set(Contact{OK: true})
				n.expect(t, Disowning, "removed by owner at noon")
				if n.removed != gone.Reason {
					t.Errorf("kept %q", n.removed)
				}
			})
		})
	}
	t.Run("member", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "configuration.json")
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, path, seal.Member)
			defer b.stop()
			kept, fails := "", 2
			b.room.config.Disown = func(reason string) error {
				if fails--; fails >= 0 {
					return errors.New("disk full")
				}
				kept = reason
				return nil
			}
			b.contact.Set(Contact{OK: true})
			b.expect(t, Home, "member")
			b.room.config.Removed.Set(gone)
			b.expect(t, Home, "disk full")
			time.Sleep(time.Minute)
			b.expect(t, Disowning, gone.Reason)
			if kept != gone.Reason {
				t.Errorf("kept %q", kept)
			}
		})
	})
}

// A member that is to have a place in the store joins it, is Home meanwhile, and opens what it has from then on; what was taken from it, it joins anew.
func TestJoinsTheStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "configuration.json")
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, path, seal.Formed)
		b.stop()
		if err := b.update(t.Context(), func(c *seal.Configuration) { c.Phase, c.StoreFormed = seal.Member, false }); err != nil {
			t.Fatal(err)
		}
		b.room = New(Config{
			Log: hclog.NewNullLogger(), Update: b.update, Configuration: b.configuration, Identity: &b.identity, Capabilities: &b.capabilities, Contact: &b.contact,
			ClusterUser: func() string { return "api-user" },
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := b.room.Run(ctx); err != nil {
				t.Errorf("run: %v", err)
			}
		}()
		defer func() { cancel(); <-done }()
		b.contact.Set(Contact{OK: true})
		var mu sync.Mutex
		waits := errors.New("")
		set := func(err error) { mu.Lock(); defer mu.Unlock(); waits = err }
		set(status.Error(codes.Unavailable, "no member answers yet"))
		p := &provider{formed: func(*consensusv1.FormRequest) error { mu.Lock(); defer mu.Unlock(); return waits }}
		provide := func(n int) {
			b.capabilities.Set(roles.Capabilities{roles.CapabilityConsensus: {InstanceID: fmt.Sprintf("n1/store/%d", n), Role: "store", Conn: p}})
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		how := func() string {
			p.mu.Lock()
			defer p.mu.Unlock()
			return strings.TrimPrefix(fmt.Sprintf("%T", p.forms[len(p.forms)-1].GetHow()), "*consensusv1.FormRequest_")
		}
		provide(1)
		b.expect(t, Home, "which waits: no member answers yet")
		if how() != "Join" || b.configuration.StoreFormed || p.forms[0].GetClusterUser() != "api-user" {
			t.Errorf("%s, %+v", how(), p.forms)
		}
		set(nil)
		time.Sleep(time.Minute)
		b.expect(t, Home, "member of the cluster")
		if !b.configuration.StoreFormed {
			t.Error("that the node has a member of the store is not kept")
		}
		provide(2)
		if how() != "Existing" {
			t.Errorf("a store that was joined is formed by %s", how())
		}
		// Its data is lost: that does not pass, until the cluster takes the role from the node.
		problem, err := status.New(codes.FailedPrecondition, "no").WithDetails(&consensusv1.FormProblem{Message: "the store is missing"})
		if err != nil {
			t.Fatal(err)
		}
		set(problem.Err())
		provide(3)
		if got, _ := b.room.Problem().Get(); got == nil || !strings.Contains(got.Message, "the store is missing") {
			t.Errorf("problem %+v", got)
		}
		b.capabilities.Set(nil)
		synctest.Wait()
		if err := errors.Join(b.room.LeaveStore(t.Context()), b.room.LeaveStore(t.Context())); err != nil {
			t.Fatal(err)
		}
		if got, _ := b.room.Problem().Get(); got != nil || b.configuration.StoreFormed {
			t.Errorf("problem %+v, formed %t", got, b.configuration.StoreFormed)
		}
		set(nil)
		provide(4)
		if how() != "Join" || !b.configuration.StoreFormed {
			t.Errorf("anew by %s", how())
		}
	})
}
