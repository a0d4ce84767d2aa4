package measures

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/proto/ticket"
)

const (
	// members is how many nodes a cluster has, each with a member of the store and a curator.
	members = 3
	// curatorPort is where the curators of a cluster listen, on the addresses of their nodes; peerPort is where the members of the store do by themselves.
	curatorPort, peerPort = 7443, 7445
)

// cluster is several nodes, of which some may run.
type cluster struct {
	bed   *Bed
	owner ed25519.PrivateKey
	// network is what the addresses of its nodes begin with.
	network string
	nodes   []*node
}

// heartbeat is raft's, in milliseconds, on both sides of a comparison. An election takes ten of them.
func (b *Bed) heartbeat() int {
	if b.Quick {
		return 10
	}
	return 100
}

// network returns what addresses begin with that nobody has: three numbers and a dot, of the loopback network. Clusters and members have ports that do not
// change when they start again, as those of real machines do.
func (b *Bed) network() (string, error) {
	for range 100 {
		var random [2]byte
		_, _ = rand.Read(random[:]) // never fails
		network := fmt.Sprintf("127.%d.%d.", 1+int(random[0])%254, random[1])
		if free(network) {
			return network, nil
		}
	}
	return "", errors.New("all addresses of the loopback network that were tried are in use")
}

func free(network string) bool {
	for number := 1; number <= members; number++ {
		listener, err := net.Listen("tcp", fmt.Sprintf("%s%d:%d", network, number, peerPort))
		if err != nil {
			return false
		}
		_ = listener.Close()
	}
	return true
}

// newCluster makes the files of the first node of a cluster. close stops what runs and removes everything.
func (b *Bed) newCluster() (*cluster, error) {
	network, err := b.network()
	if err != nil {
		return nil, err
	}
	_, owner, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	c := &cluster{bed: b, owner: owner, network: network}
	if _, err := c.add(""); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// add makes the files of the next node.
func (c *cluster) add(ticketFile string) (*node, error) {
	raft, err := json.Marshal(map[string]int{"heartbeatMilliseconds": c.bed.heartbeat(), "electionMilliseconds": 10 * c.bed.heartbeat()})
	if err != nil {
		return nil, err
	}
	n, err := (&node{
		bed: c.bed, owner: c.owner, address: fmt.Sprintf("%s%d", c.network, len(c.nodes)+1), port: curatorPort, raft: string(raft), ticket: ticketFile,
	}).make()
	if err != nil {
		return nil, err
	}
	c.nodes = append(c.nodes, n)
	return n, nil
}

// grow has the cluster, of which the first node was just started, have all of its nodes, and waits until each of them votes in the store.
func (c *cluster) grow(ctx context.Context) error {
	first := c.nodes[0]
	if err := first.await(ctx, "the first node is Home", func(s *nodev1.Status) bool { return home(s) && ready(s, "consensus", "curator") }); err != nil {
		return err
	}
	file, err := c.ticket(ctx)
	if err != nil {
		return err
	}
	for len(c.nodes) < members {
		n, err := c.add(file)
		if err != nil {
			return err
		}
		if err := n.start(ctx); err != nil {
			return err
		}
		if err := c.approve(ctx, n); err != nil {
			return err
		}
	}
	return c.await(ctx, "is Home, and all members of the store vote", voters)
}

// approve lets a node in that registers.
func (c *cluster) approve(ctx context.Context, n *node) error {
	if err := n.await(ctx, fmt.Sprintf("the node at %s has registered", n.address), func(s *nodev1.Status) bool {
		return s.GetMembership().GetState() == hostv1.MembershipState_MEMBERSHIP_STATE_FOREIGN
	}); err != nil {
		return err
	}
	management, done, err := c.nodes[0].management()
	if err != nil {
		return err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err = management.ApproveNode(ctx, &clusterv1.ApproveNodeRequest{NodeId: n.last.GetNodeId(), PublicKey: n.last.GetPublicKey()})
	return err
}

// ticket makes a ticket, and returns the file that it is in.
func (c *cluster) ticket(ctx context.Context) (string, error) {
	management, done, err := c.nodes[0].management()
	if err != nil {
		return "", err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	made, err := management.CreateTicket(ctx, &clusterv1.CreateTicketRequest{Uses: members - 1, Roles: []string{"consensus", "curator"}})
	if err != nil {
		return "", err
	}
	text, err := ticket.Encode(made.GetText())
	if err != nil {
		return "", err
	}
	file := filepath.Join(c.nodes[0].at.work, "ticket")
	return file, os.WriteFile(file, []byte(text+"\n"), 0o600)
}

// await waits until every node is as it should be.
func (c *cluster) await(ctx context.Context, what string, ok func(*nodev1.Status) bool) error {
	for _, n := range c.nodes {
		if err := n.await(ctx, fmt.Sprintf("the node at %s %s", n.address, what), ok); err != nil {
			return err
		}
	}
	return nil
}

// voters says whether a node is Home, and its member of the store knows that all of them vote.
func voters(s *nodev1.Status) bool {
	if !home(s) || !ready(s, "consensus") || !s.GetStore().GetQuorum() || len(s.GetStore().GetMembers()) != members {
		return false
	}
	for _, member := range s.GetStore().GetMembers() {
		if member.GetLearner() {
			return false
		}
	}
	return true
}

// settled says whether a node is one of a cluster that works.
func settled(s *nodev1.Status) bool {
	return voters(s) && ready(s, "curator") && len(s.GetCluster().GetCurators()) == members
}

// runningCluster is newCluster, start, grow, and waits until everything runs.
func (b *Bed) runningCluster(ctx context.Context) (*cluster, error) {
	c, err := b.newCluster()
	if err != nil {
		return nil, err
	}
	if err = c.nodes[0].start(ctx); err == nil {
		if err = c.grow(ctx); err == nil {
			err = c.await(ctx, "has a curator, and knows all of them", settled)
		}
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// close stops all nodes at the same time and removes their files.
func (c *cluster) close() error {
	problems := make(chan error)
	for _, n := range c.nodes {
		go func() { problems <- n.close() }()
	}
	var all []error
	for range c.nodes {
		all = append(all, <-problems)
	}
	return errors.Join(all...)
}

// management connects to all curators, as the command line does: calls are spread over them, and what only reads is made again.
func (c *cluster) management() (clusterv1.ManagementServiceClient, func(), error) {
	credentials, err := c.nodes[0].asOwner()
	if err != nil {
		return nil, nil, err
	}
	var state resolver.State
	for _, n := range c.nodes {
		state.Addresses = append(state.Addresses, resolver.Address{Addr: n.curator()})
	}
	curators := manual.NewBuilderWithScheme("curators")
	curators.InitialState(state)
	conn, err := grpc.NewClient("curators:///", grpc.WithResolvers(curators), grpc.WithTransportCredentials(credentials),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`))
	if err != nil {
		return nil, nil, err
	}
	return clusterv1.NewManagementServiceClient(conn), func() { _ = conn.Close() }, nil
}

// curator is where the curator of a node of a cluster listens.
func (n *node) curator() string { return net.JoinHostPort(n.address, strconv.Itoa(n.port)) }

// leader returns the node whose member leads the store.
func (c *cluster) leader() (*node, error) {
	for _, n := range c.nodes {
		if store := n.last.GetStore(); store.GetLeaderId() != "" && store.GetLeaderId() == store.GetMemberId() {
			return n, nil
		}
	}
	return nil, errors.New("no node's member leads the store")
}

// kill ends all processes of a node at once, as if its machine had lost its power: its member of the store first.
func (n *node) kill() error {
	pids := []int{int(instanceOf(n.last, "consensus").GetPid()), n.core.pid()}
	for _, instance := range n.last.GetNode().GetInstances() {
		if pid := int(instance.GetPid()); pid != 0 && pid != pids[0] {
			pids = append(pids, pid)
		}
	}
	for _, pid := range pids {
		if pid == 0 {
			return fmt.Errorf("the node at %s has no member of the store that could be killed", n.address)
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("kill process %d of the node at %s: %w", pid, n.address, err)
		}
	}
	return nil
}

// revive starts a node that was killed again.
func (n *node) revive(ctx context.Context) error {
	<-n.core.ended
	n.cancel()
	if err := n.local.Close(); err != nil {
		return err
	}
	n.last = nil
	return n.start(ctx)
}

// bareCluster is several etcds without anything around them.
type bareCluster struct {
	bed     *Bed
	network string
	strict  bool
	at      []place
	members []*process // nil: it does not run
}

// newBareCluster has room for as many members as a cluster has.
func (b *Bed) newBareCluster(strict bool) (*bareCluster, error) {
	network, err := b.network()
	if err != nil {
		return nil, err
	}
	c := &bareCluster{bed: b, network: network, strict: strict, members: make([]*process, members)}
	for range members {
		at, err := b.place()
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		c.at = append(c.at, at)
	}
	return c, nil
}

func (c *bareCluster) name(n int) string   { return fmt.Sprintf("bare%d", n) }
func (c *bareCluster) peer(n int) string   { return fmt.Sprintf("http://%s%d:2380", c.network, n+1) }
func (c *bareCluster) client(n int) string { return fmt.Sprintf("http://%s%d:2379", c.network, n+1) }

// start starts a member of a cluster that has count of them by then, and returns when it serves. A member that joins is one that was added.
func (c *bareCluster) start(ctx context.Context, n, count int, join bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	p, lines, err := c.exec(n, count, join)
	if err != nil {
		return err
	}
	_, err = p.line(ctx, lines)
	return err
}

func (c *bareCluster) exec(n, count int, join bool) (*process, <-chan string, error) {
	var all []string
	for i := range count {
		all = append(all, c.name(i)+"="+c.peer(i))
	}
	arguments := []string{
		"-directory", filepath.Join(c.at[n].work, "etcd"), "-sockets", c.at[n].run, "-name", c.name(n), "-host", fmt.Sprintf("%s%d", c.network, n+1),
		"-cluster", strings.Join(all, ","), "-heartbeat", fmt.Sprint(c.bed.heartbeat()), fmt.Sprintf("-join=%t", join), fmt.Sprintf("-strict=%t", c.strict),
	}
	lines := make(chan string, 1)
	var err error
	c.members[n], err = startProcess(filepath.Join(c.at[n].work, "log"), lines, c.bed.Programs.bench("barestore"), arguments...)
	return c.members[n], lines, err
}

// startAll starts all members at the same time, of a cluster that they make together or that has them.
func (c *bareCluster) startAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var all []<-chan string
	for n := range c.members {
		_, lines, err := c.exec(n, members, false)
		if err != nil {
			return err
		}
		all = append(all, lines)
	}
	for n, lines := range all {
		if _, err := c.members[n].line(ctx, lines); err != nil {
			return err
		}
	}
	return nil
}

// endpoints are those of all members.
func (c *bareCluster) endpoints() []string {
	var all []string
	for n := range c.members {
		all = append(all, c.client(n))
	}
	return all
}

// close stops all members and removes their files.
func (c *bareCluster) close() error {
	var all []error
	for _, p := range c.members {
		if p != nil && !p.hasEnded() {
			all = append(all, p.command.Process.Kill())
			<-p.ended
		}
	}
	for _, at := range c.at {
		all = append(all, at.remove())
	}
	return errors.Join(all...)
}

// attempts makes a call again until it is acknowledged, and returns when that was. bound is how long one may take; 0: as long as it wants.
func attempts(ctx context.Context, bound time.Duration, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		attempt, end := ctx, context.CancelFunc(func() {})
		if bound > 0 {
			attempt, end = context.WithTimeout(ctx, bound)
		}
		err := call(attempt)
		end()
		if err == nil {
			return nil
		}
		if waited := wait(ctx, again); waited != nil {
			return fmt.Errorf("not acknowledged within %s: %w", patience, err)
		}
	}
}

// again is the pause before a call that was not acknowledged is made again.
const again = 10 * time.Millisecond
