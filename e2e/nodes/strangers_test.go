package nodes_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/fleet"
	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/proto/ticket"
)

// TestStrangers is one cluster, of two nodes, for all that strangers try with it.
func TestStrangers(t *testing.T) {
	c := &besieged{Cluster: shared.OrdinaryCluster(t)}
	c.MustReeve(t, "dev", "up", "--detach")
	c.first = fleet.ID(t, c.Cluster, 1)
	core := fleet.StartCore(t, c.Cluster, fleet.Machine(t, c.Cluster, 2))
	fleet.Await(t, c.Cluster, 1, patience, "two nodes", func(nodes []fleet.Node) bool { return len(nodes) == 2 && nodes[0].Healthy && nodes[1].Healthy })
	c.second = fleet.ID(t, c.Cluster, 2)
	fleet.AwaitStatus(t, c.Cluster, 1, "the first node knows its curator", func(status devcluster.Status) bool {
		if !status.Up("curator") || len(status.Cluster.Curators) == 0 {
			return false
		}
		c.curator, c.pid = status.Cluster.Curators[0], status.Role("curator").PID
		return true
	})

	t.Run("tickets", c.tickets)
	t.Run("Commits", c.commits)
	t.Run("wrong CA pin", c.wrongPin)
	t.Run("flood", c.flood)
	c.twoMachines(t, core)
}

// besieged is a cluster that strangers come to.
type besieged struct {
	*devcluster.Cluster
	first, second string
	// curator is where its curator is reached, and pid its process.
	curator string
	pid     int
}

// stranger is a machine that nobody knows: a key, and a connection with the curator.
type stranger struct {
	key ed25519.PrivateKey
	api clusterv1.EnrolmentServiceClient
}

// stranger returns a new one, that connects from an address.
func (c *besieged) stranger(t *testing.T, from string) stranger {
	t.Helper()
	key := devcluster.NewKey(t)
	return stranger{key: key, api: c.as(t, from, key)}
}

// as is the curator for who has a key.
func (c *besieged) as(t *testing.T, from string, key ed25519.PrivateKey) clusterv1.EnrolmentServiceClient {
	t.Helper()
	conn := curatorAt(t, c.curator, from, selfSigned(t, key))
	t.Cleanup(func() { _ = conn.Close() })
	return clusterv1.NewEnrolmentServiceClient(conn)
}

// ticket has a ticket made, and returns what it says.
func (c *besieged) ticket(t *testing.T, arguments ...string) *clusterv1.TicketText {
	t.Helper()
	made := c.MustReeve(t, append([]string{"ticket", "create"}, arguments...)...)
	text, err := ticket.Parse(made.Stdout)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// request is what a machine asks for that has a ticket.
func request(t *testing.T, text *clusterv1.TicketText) *clusterv1.RegisterRequest {
	t.Helper()
	return &clusterv1.RegisterRequest{
		TicketId: text.GetTicketId(), TicketSecret: text.GetSecret(), JoinPublicKey: devcluster.NewKey(t).Public().(ed25519.PublicKey),
		Version: "0", Addresses: []string{"127.0.0.9"}, Sealer: "file", Volume: "plain",
	}
}

// random are that many random bytes.
func random(n int) []byte {
	content := make([]byte, n)
	_, _ = rand.Read(content) // never fails
	return content
}

// refused fails the test if an error is not that refusal.
func refused(t *testing.T, what string, err error, code codes.Code, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(status.Convert(err).Message(), word) {
			t.Errorf("%s: the refusal does not say %q: %v", what, word, err)
		}
	}
	if status.Code(err) != code {
		t.Errorf("%s: %v, want %s", what, err, code)
	}
}

// listed is a ticket as the cluster's list shows it.
type listed struct {
	ID      string    `json:"id"`
	Expires time.Time `json:"expires"`
	Used    int       `json:"used"`
}

// listed is the ticket with an ID.
func (c *besieged) listed(t *testing.T, id string) listed {
	t.Helper()
	result := c.MustReeve(t, "ticket", "list", "-o", "json")
	var document struct {
		Tickets []listed `json:"tickets"`
	}
	if err := json.Unmarshal([]byte(result.Stdout), &document); err != nil {
		t.Fatalf("%v: %s", err, result)
	}
	for _, ticket := range document.Tickets {
		if ticket.ID == id {
			return ticket
		}
	}
	t.Fatalf("there is no ticket %s: %s", id, result)
	return listed{}
}

// tickets shows tickets that are none, are none any more, or were used by somebody else.
func (c *besieged) tickets(t *testing.T) {
	ctx := t.Context()
	try := func(from string, request *clusterv1.RegisterRequest) error {
		_, err := c.stranger(t, from).api.Register(ctx, request)
		return err
	}
	good := c.ticket(t)
	forged := request(t, good)
	forged.TicketSecret = random(len(good.GetSecret()))
	refused(t, "another secret", try("127.0.1.1", forged), codes.Unauthenticated, "none that cluster")
	forged = request(t, good)
	forged.TicketId = fmt.Sprintf("%x", random(8))
	refused(t, "another ID", try("127.0.1.2", forged), codes.Unauthenticated, "none that cluster")
	forged = request(t, good)
	forged.TicketSecret = nil
	refused(t, "no secret", try("127.0.1.3", forged), codes.Unauthenticated, "none that cluster")

	// It was good all the while, for one. Who comes again is the same; who else comes is not.
	own := c.stranger(t, "127.0.1.4")
	asked := request(t, good)
	registered, err := own.api.Register(ctx, asked)
	if err != nil || registered.GetNode().GetState() != clusterv1.NodeState_NODE_STATE_NEW {
		t.Fatalf("a good ticket: %v, %v", registered, err)
	}
	again, err := c.as(t, "127.0.1.4", own.key).Register(ctx, asked)
	if err != nil || again.GetNode().GetGeneration() != registered.GetNode().GetGeneration() || c.listed(t, good.GetTicketId()).Used != 1 {
		t.Errorf("the same machine again: %v, %v; %+v", again, err, c.listed(t, good.GetTicketId()))
	}
	refused(t, "a ticket that was seen on the way, with another key", try("127.0.1.5", asked), codes.Unauthenticated, "spent")
	stolen := request(t, good)
	refused(t, "a spent ticket", try("127.0.1.5", stolen), codes.Unauthenticated, "spent")
	if nodes, seen := fleet.List(t, c.Cluster, 1); len(nodes) != 3 {
		t.Errorf("there are more nodes than machines that were let in: %s", seen)
	}

	short := c.ticket(t, "--lifetime", "1s")
	ends := c.listed(t, short.GetTicketId()).Expires
	eventually.True(t, patience, "a ticket expires", func() (bool, string) { return time.Now().After(ends), ends.String() })
	refused(t, "an expired ticket", try("127.0.1.6", request(t, short)), codes.Unauthenticated, "expired")
	forged = request(t, short)
	forged.TicketSecret = random(len(short.GetSecret()))
	refused(t, "an expired ticket with another secret, to which nothing is told", try("127.0.1.6", forged), codes.Unauthenticated, "none that cluster")
	revoked := c.ticket(t)
	c.MustReeve(t, "ticket", "revoke", revoked.GetTicketId())
	refused(t, "a revoked ticket", try("127.0.1.7", request(t, revoked)), codes.Unauthenticated, "none that cluster")
	c.MustReeve(t, "node", "delete", registered.GetNode().GetId(), "--yes", "--force")
	if _, err := c.as(t, "127.0.1.4", own.key).Register(ctx, asked); !removedError(err) {
		t.Errorf("a machine that was removed registers by what let it in: %v", err)
	}
	if _, err := c.as(t, "127.0.1.4", own.key).Register(ctx, request(t, c.ticket(t, "--auto-approve"))); !removedError(err) {
		t.Errorf("a machine that was removed registers by a new ticket: %v", err)
	}
}

// commits says Commit who may not, or not any more.
func (c *besieged) commits(t *testing.T) {
	ctx := t.Context()
	start := func(number uint64) *clusterv1.Incarnation {
		return &clusterv1.Incarnation{Number: number, Nonce: random(16)}
	}
	_, err := c.stranger(t, "127.0.3.1").api.Commit(ctx, &clusterv1.CommitRequest{Incarnation: start(1)})
	refused(t, "a key that nobody knows", err, codes.NotFound, "no node with this key")

	// A certificate that says a node's key and is not signed by it does not come as far as the curator.
	victim := steal(t, c.Cluster, 2)
	forged := selfSigned(t, devcluster.NewKey(t))
	forged.Certificate = selfSigned(t, victim.nodeKey).Certificate
	conn := curatorAt(t, c.curator, "127.0.3.2", forged)
	defer func() { _ = conn.Close() }()
	_, err = clusterv1.NewEnrolmentServiceClient(conn).Commit(ctx, &clusterv1.CommitRequest{Incarnation: start(99)})
	refused(t, "a node's certificate without its key", err, codes.Unavailable)

	// One that is not approved commits nothing. One that is does so once: whoever says it again, with other secrets or from the past, changes nothing.
	waits := c.stranger(t, "127.0.3.3")
	if _, err := waits.api.Register(ctx, request(t, c.ticket(t))); err != nil {
		t.Fatal(err)
	}
	commit := &clusterv1.CommitRequest{Cuk: random(32), Incarnation: start(7)}
	_, err = waits.api.Commit(ctx, commit)
	id := identity.NodeID(waits.key.Public().(ed25519.PublicKey))
	refused(t, "one that is not approved", err, codes.FailedPrecondition, "reeve node approve "+id)
	c.MustReeve(t, "node", "approve", id, "--yes")
	committed, err := waits.api.Commit(ctx, commit)
	if err != nil {
		t.Fatal(err)
	}
	replayed, err := c.as(t, "127.0.3.4", waits.key).Commit(ctx, commit)
	if err != nil || replayed.GetNode().GetGeneration() != committed.GetNode().GetGeneration() {
		t.Errorf("the same Commit again, whose answer may have been lost: %v, %v", replayed, err)
	}
	_, err = waits.api.Commit(ctx, &clusterv1.CommitRequest{Cuk: random(32), Incarnation: commit.GetIncarnation()})
	refused(t, "a Commit with another key of the volume", err, codes.AlreadyExists, "another half of the key")
	_, err = waits.api.Commit(ctx, &clusterv1.CommitRequest{Incarnation: commit.GetIncarnation()})
	refused(t, "a Commit without a key of the volume", err, codes.AlreadyExists, "another half of the key")
	_, err = waits.api.Commit(ctx, &clusterv1.CommitRequest{Cuk: commit.GetCuk(), Incarnation: start(6)})
	refused(t, "a Commit of an earlier start", err, codes.FailedPrecondition, "a later start")
	_, err = waits.api.Commit(ctx, &clusterv1.CommitRequest{Cuk: commit.GetCuk(), Incarnation: start(7)})
	refused(t, "a Commit of another machine with that key", err, codes.FailedPrecondition, "another machine with the key")
	c.MustReeve(t, "node", "delete", id, "--yes", "--force")
	if _, err := waits.api.Commit(ctx, commit); !removedError(err) {
		t.Errorf("a Commit that is said again by a node that was removed: %v", err)
	}
	// The victim noticed nothing of all this.
	fleet.Await(t, c.Cluster, 1, patience, "the other node is well", func(nodes []fleet.Node) bool {
		return fleet.ByID(nodes, c.second).Healthy && !strings.Contains(fleet.ByID(nodes, c.second).Problem, "was refused")
	})
}

// wrongPin gives a machine a ticket with the pin of another CA, and one that leads to a curator of another CA: it says so, and its ticket is shown to nobody.
func (c *besieged) wrongPin(t *testing.T) {
	text := c.ticket(t, "--uses", "2")
	here := text.GetCurators()
	impostor := impostor(t, text.GetClusterId())
	for _, wrong := range []struct {
		what     string
		pins     [][]byte
		curators []string
	}{
		{"another pin", [][]byte{random(ticket.PinSize)}, here},
		{"another curator", text.GetCaPins(), []string{impostor.address}},
	} {
		text.CaPins, text.Curators = wrong.pins, wrong.curators
		encoded, err := ticket.Encode(text)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(c.Home, "wrong")
		if err := os.WriteFile(file, []byte(encoded), 0o644); err != nil {
			t.Fatal(err)
		}
		state, run := filepath.Join(c.Home, "w"), filepath.Join(c.Home, "rw")
		parameters := filepath.Join(state, "reeved.yaml")
		result := c.StartAlone(t, "init", "--join", file, "--file", parameters, "--state", state, "--run", run, "--address", "127.0.0.9", "--api-listen", "127.0.0.9:0").Wait(t, time.Minute)
		if result.Code != 0 {
			t.Fatal(result)
		}
		core := fleet.StartCore(t, c.Cluster, parameters)
		eventually.True(t, time.Minute, wrong.what+": the machine says that it is another CA", func() (bool, string) {
			result := c.StartAlone(t, "status", "-o", "json", "--socket", filepath.Join(run, "node.sock")).Wait(t, time.Minute)
			status, err := devcluster.ParseStatus(result.Stdout)
			return err == nil && status.Membership.State != "Home" && strings.Contains(status.Membership.Reason, "CA"), result.String()
		})
		core.Signal(t, 15)
		<-core.Done()
		for _, path := range []string{state, run, file} {
			if err := os.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
		}
	}
	if calls := impostor.calls(); len(calls) > 0 {
		t.Errorf("a curator of another CA was called: %v", calls)
	}
	if connections := impostor.connections(); connections == 0 {
		t.Error("nobody came to the curator of another CA")
	}
	if ticket := c.listed(t, text.GetTicketId()); ticket.Used != 0 {
		t.Errorf("the ticket was used: %+v", ticket)
	}
}

// pretender is a server that says it is a curator, with a CA of its own.
type pretender struct {
	address string

	mu     sync.Mutex
	called []string
	came   int
}

func (p *pretender) calls() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.called)
}

func (p *pretender) connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.came
}

func impostor(t *testing.T, clusterID string) *pretender {
	t.Helper()
	p := new(pretender)
	certificate := madeUp(t, identity.CuratorName(identity.TrustDomain(clusterID)))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.address = listener.Addr().String()
	config := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequireAnyClientCert}
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.came++
		return nil, nil
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(config)), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.called = append(p.called, method)
		return status.Error(codes.Unavailable, "later")
	}))
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return p
}

// twoMachines starts a copy of a node's disk beside the node. It is refused by the number of its start, says so, and so does the cluster; the node notices nothing, until its
// owner says that the copy is the node.
func (c *besieged) twoMachines(t *testing.T, core *devcluster.Running) {
	core.Signal(t, 15)
	if result := core.Wait(t, time.Minute); result.Code != 0 {
		t.Fatal(result)
	}
	// The other machine has an address and parameters of its own, and the node's disk.
	original, other := filepath.Join(c.NodeDirectory(2), "reeved.yaml"), fleet.Machine(t, c.Cluster, 3)
	for _, name := range []string{"system", "data"} {
		if result := c.Run(t, "/bin/cp", "-aT", filepath.Join(c.NodeDirectory(2), name), filepath.Join(c.NodeDirectory(3), name)); result.Code != 0 {
			t.Fatal(result)
		}
	}
	core = fleet.StartCore(t, c.Cluster, original)
	fleet.AwaitStatus(t, c.Cluster, 2, "the node is there", func(status devcluster.Status) bool { return status.Up() })
	twin := fleet.StartCore(t, c.Cluster, other)
	fleet.AwaitStatus(t, c.Cluster, 3, "the copy is refused and says why", func(status devcluster.Status) bool {
		return status.Node.ID == c.second && status.Membership.State == "Split" && strings.Contains(status.Membership.Reason, "another machine runs with the key of node "+c.second) &&
			strings.Contains(status.Membership.Reason, "reeve node accept "+c.second)
	})
	nodes := fleet.Await(t, c.Cluster, 1, patience, "the cluster says so", func(nodes []fleet.Node) bool {
		return strings.Contains(fleet.ByID(nodes, c.second).Problem, "was refused")
	})
	if problem := fleet.ByID(nodes, c.second).Problem; !strings.Contains(problem, "machine") || !strings.Contains(problem, "127.0.0.") {
		t.Errorf("the cluster's list does not name the two machines, and where the other one is: %q", problem)
	}
	if now, seen := fleet.Status(t, c.Cluster, 2); !now.Up() {
		t.Errorf("the node does not run on: %s", seen)
	}
	for _, running := range []*devcluster.Running{twin, core} {
		running.Signal(t, 15)
		if result := running.Wait(t, time.Minute); result.Code != 0 {
			t.Error(result)
		}
	}
}
