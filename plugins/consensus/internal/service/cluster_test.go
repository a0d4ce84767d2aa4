package service_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/consensus/internal/service"
	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// cluster is nodes whose roles find each other.
type cluster struct {
	t         *testing.T
	root      string
	directory *directory
	nodes     map[string]*node
	revision  int64
	places    map[string]string // where the members listen, over restarts too
}

// node is a role and the core's client of it.
type node struct {
	consensusv1.ConsensusServiceClient
	id       string
	cluster  *cluster
	wire     *wire
	reporter *reporter
	access   uint64
	// end has the role end, and stop waits for it.
	end  context.CancelFunc
	stop func()
}

func newCluster(t *testing.T) *cluster {
	t.Parallel() // members wait for one another most of the time
	return &cluster{t: t, root: storetest.Directory(t), directory: &directory{places: make(map[string]string), follows: make(map[string]store.Generation)}, nodes: make(map[string]*node), places: make(map[string]string)}
}

// Raft's times among several members on one machine: with those of storetest, a busy one does hardly anything but elect.
const heartbeat, election = 50 * time.Millisecond, 500 * time.Millisecond

// start starts the role of a node, or starts it again.
func (c *cluster) start(id string, changes ...func(*service.Config)) *node {
	c.t.Helper()
	n := &node{id: id, cluster: c, wire: &wire{node: id, directory: c.directory}, reporter: &reporter{}}
	n.wire.addresses.Set([]string{"127.0.0.1"})
	if c.places[id] == "" {
		c.places[id] = storetest.Free(c.t)
	}
	config := storetest.Config(c.t, storetest.Mkdir(c.t, c.root, id))
	s := service.New()
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	s.Register(server)
	socket := filepath.Join(c.root, id, "plugin.sock")
	_ = os.Remove(socket)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		c.t.Fatal(err)
	}
	connection, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		c.t.Fatal(err)
	}
	n.ConsensusServiceClient = consensusv1.NewConsensusServiceClient(connection)
	ctx, cancel := context.WithCancel(context.Background())
	var running, serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	settings := service.Config{
		Log: config.Log, DataDirectory: config.Directory, RuntimeDirectory: config.RuntimeDirectory,
		Heartbeat: heartbeat, Election: election, Reporter: n.reporter, Network: n.wire, PeerListen: c.places[id],
	}
	for _, change := range changes {
		change(&settings)
	}
	running.Go(func() {
		if err := s.Run(ctx, settings); err != nil {
			c.t.Logf("the role of %s ended: %v", id, err)
		}
	})
	n.end = cancel
	n.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		connection.Close()
		server.Stop()
		serving.Wait()
	})
	c.t.Cleanup(n.stop)
	c.nodes[id] = n
	return n
}

func (n *node) form(how any) error {
	request := &consensusv1.FormRequest{ClusterId: "cluster-a", NodeId: n.id, ClusterUser: "curator"}
	switch how {
	case "new":
		request.How = &consensusv1.FormRequest_New{New: &consensusv1.FormNew{}}
	case "join":
		request.How = &consensusv1.FormRequest_Join{Join: &consensusv1.FormJoin{}}
	case "existing":
		request.How = &consensusv1.FormRequest_Existing{Existing: &consensusv1.FormExisting{}}
	}
	_, err := n.Form(storetest.Context(n.cluster.t), request)
	return err
}

// join forms the member of a node as the core does: again and again while it is to wait.
func (n *node) join() {
	n.cluster.t.Helper()
	if err := n.answered("join"); err != nil {
		n.cluster.t.Fatal(err)
	}
}

// answered forms the member of a node, as the core does, again and again while it is told to wait, and returns what else it is told.
func (n *node) answered(how string) (err error) {
	n.cluster.t.Helper()
	storetest.Eventually(n.cluster.t, "the member of "+n.id+" is told more than to wait", func() bool {
		err = n.form(how)
		return status.Code(err) != codes.Unavailable
	})
	return err
}

// client is the cluster API's, on the node.
func (n *node) client() *clientv3.Client {
	n.cluster.t.Helper()
	n.access++
	socket := filepath.Join(storetest.Mkdir(n.cluster.t, n.cluster.root, n.id, "access"), fmt.Sprintf("%d.sock", n.access))
	instance := &consensusv1.AccessInstance{InstanceId: fmt.Sprintf("%s/curator.%d", n.id, n.access), ConsensusUser: "curator", Socket: socket, Uid: uint32(os.Getuid())}
	if _, err := n.SetAccess(storetest.Context(n.cluster.t), &consensusv1.SetAccessRequest{CoreStart: 1, Number: n.access, Instances: []*consensusv1.AccessInstance{instance}}); err != nil {
		n.cluster.t.Fatal(err)
	}
	storetest.Eventually(n.cluster.t, "the access of "+n.id, func() bool { _, err := os.Lstat(socket); return err == nil })
	return storetest.Dial(n.cluster.t, socket)
}

// want writes the document of desired members.
func (c *cluster) want(client *clientv3.Client, members ...string) {
	c.t.Helper()
	content, err := proto.Marshal(&consensusv1.DesiredState{Members: members})
	if err != nil {
		c.t.Fatal(err)
	}
	c.revision = c.put(client, consensusv1.DesiredStateKey, string(content))
}

// put puts a key of the cluster API and returns the revision. A write that is lost because the leader changes is made again: that is nothing that it could be spared.
func (c *cluster) put(client *clientv3.Client, key, value string) (revision int64) {
	c.t.Helper()
	var refused error
	defer func() {
		if c.t.Failed() && refused != nil {
			c.t.Logf("the last write: %v", refused)
		}
	}()
	storetest.Eventually(c.t, "a write of "+key, func() bool {
		var answer *clientv3.PutResponse
		if answer, refused = client.Put(storetest.Context(c.t), consensusv1.UserPrefix("curator")+key, value); refused == nil {
			revision = answer.Header.Revision
		}
		return refused == nil
	})
	return revision
}

func told(t *testing.T, client *clientv3.Client) *consensusv1.StoreState {
	t.Helper()
	state, err := tryTold(t, client)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func tryTold(t *testing.T, client *clientv3.Client) (*consensusv1.StoreState, error) {
	state := &consensusv1.StoreState{}
	answer, err := client.Get(storetest.Context(t), consensusv1.UserPrefix("curator")+consensusv1.StoreStateKey)
	if err != nil || len(answer.Kvs) == 0 {
		return state, err
	}
	return state, proto.Unmarshal(answer.Kvs[0].Value, state)
}

// await waits until the leader tells what is expected. A read that fails because the leader changes is made again.
func (c *cluster) await(client *clientv3.Client, what string, fits func(*consensusv1.StoreState) bool) *consensusv1.StoreState {
	c.t.Helper()
	var last *consensusv1.StoreState
	var err error
	defer func() {
		if c.t.Failed() {
			c.t.Logf("told last: %v, %v", last, err)
		}
	}()
	storetest.Eventually(c.t, what, func() bool {
		last, err = tryTold(c.t, client)
		return err == nil && last.DesiredRevision >= c.revision && fits(last)
	})
	return last
}

// settled is a store whose voters, all healthy, are those of these nodes and nobody else's.
func settled(nodes ...string) func(*consensusv1.StoreState) bool {
	return func(state *consensusv1.StoreState) bool {
		if len(state.Members) != len(nodes) {
			return false
		}
		for n, member := range state.Members {
			if member.NodeId != nodes[n] || member.MemberId == "" || member.Learner || !member.Healthy || member.Step != "" {
				return false
			}
		}
		return true
	}
}

// grown is a store with a member on each of these nodes.
func grown(t *testing.T, ids ...string) (*cluster, *clientv3.Client) {
	t.Helper()
	c := newCluster(t)
	first := c.start(ids[0])
	if err := first.form("new"); err != nil {
		t.Fatal(err)
	}
	client := first.client()
	c.want(client, ids...)
	for _, id := range ids[1:] {
		c.start(id).join()
	}
	c.await(client, "all vote", settled(ids...))
	return c, client
}

// TestGrow goes from one member to three and writes all the time.
func TestGrow(t *testing.T) {
	c := newCluster(t)
	calmly := calm(5 * time.Second)
	first := c.start("reeve-1", calmly)
	if err := first.form("new"); err != nil {
		t.Fatal(err)
	}
	client := first.client()
	ctx, cancel := context.WithCancel(storetest.Context(t))
	var writing sync.WaitGroup
	written := 0
	writing.Go(func() {
		for ctx.Err() == nil {
			if _, err := client.Put(ctx, "/reeve/users/curator/count", fmt.Sprint(written+1)); err == nil {
				written++
			} else if !errors.Is(err, context.Canceled) && !strings.Contains(err.Error(), "cancel") {
				t.Errorf("a write failed: %v", err)
				return
			}
		}
	})
	defer writing.Wait()
	defer cancel()
	c.want(client, "reeve-1")
	c.await(client, "the first is told", settled("reeve-1"))
	c.want(client, "reeve-1", "reeve-2", "reeve-3")
	c.await(client, "the others are waited for", func(s *consensusv1.StoreState) bool {
		return len(s.Members) == 3 && s.Members[1].MemberId == "" && strings.Contains(s.Members[1].Step, "has not asked")
	})
	second := c.start("reeve-2", calmly)
	second.join()
	c.start("reeve-3", calmly).join()
	c.await(client, "three vote", settled("reeve-1", "reeve-2", "reeve-3"))
	cancel()
	writing.Wait()
	answer, err := second.client().Get(storetest.Context(t), "/reeve/users/curator/count")
	if err != nil || len(answer.Kvs) != 1 {
		t.Fatalf("read by another member: %v", err)
	}
	if got := string(answer.Kvs[0].Value); got != fmt.Sprint(written) && got != fmt.Sprint(written+1) {
		t.Errorf("the other member has %s of %d writes", got, written)
	}
}
