package membership

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/enrol"
	"github.com/reeveproject/reeve/core/identity"
	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/roles"
	"github.com/reeveproject/reeve/core/seal"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
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
		return nil, &enrol.RefusedError{Message: "no such ticket"}
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
		return nil, &enrol.RefusedError{Message: "another CUK is known"}
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
		Curators:    new(event.Value[[]string]), StoreLeft: new(event.Value[bool]), Removed: new(event.Value[*enrol.RemovedError]),
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
			Enrolment: n.office, Request: &clusterv1.RegisterRequest{Version: "1.2.3"}, Addresses: event.New([]string{"192.0.2.1"}),
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
