package door_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/reeveproject/reeve/plugins/consensus/internal/door"
	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// node is a store with a door, and a directory for the sockets.
type node struct {
	directory string
	store     *store.Store
	door      *door.Door
	number    uint64
	stop      func()
}

func start(t testing.TB, directory string) *node {
	t.Helper()
	return startWith(t, directory, door.Config{})
}

func startWith(t testing.TB, directory string, config door.Config) *node {
	t.Helper()
	s, closeStore := storetest.Open(t, directory, storetest.Plan)
	config.Log = storetest.Log(t)
	n := &node{directory: directory, store: s, door: door.New(config)}
	stopDoor := n.run(t, s.Status())
	n.stop = sync.OnceFunc(func() {
		stopDoor()
		closeStore()
	})
	t.Cleanup(n.stop)
	return n
}

// run runs the door on a status, which need not be the store's, until the returned function is called.
func (n *node) run(t testing.TB, status *event.Value[store.Status]) func() {
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		if err := n.door.Run(ctx, n.store, status); err != nil {
			t.Error(err)
		}
	})
	return func() {
		cancel()
		group.Wait()
	}
}

func (n *node) ensure(t testing.TB, users ...string) {
	t.Helper()
	for _, user := range users {
		if err := n.store.EnsureUser(storetest.Context(t), user); err != nil {
			t.Fatal(err)
		}
	}
}

// instance is one of this process's own user, in a directory made for it.
func (n *node) instance(t testing.TB, name, user string) *consensusv1.AccessInstance {
	t.Helper()
	directory := storetest.Mkdir(t, n.directory, "access", name)
	for _, open := range []string{filepath.Dir(directory), directory} {
		if err := os.Chmod(open, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	return &consensusv1.AccessInstance{
		InstanceId:    "reeve-1/" + name,
		ConsensusUser: user,
		Socket:        filepath.Join(directory, "consensus.sock"),
		Uid:           uint32(os.Getuid()),
	}
}

// set gives the next set.
func (n *node) set(t testing.TB, instances ...*consensusv1.AccessInstance) {
	t.Helper()
	n.number++
	if err := n.door.Set(&consensusv1.SetAccessRequest{CoreStart: 1, Number: n.number, Instances: instances}); err != nil {
		t.Fatal(err)
	}
}

// await waits until an instance is in a state, and returns the reason.
func (n *node) await(t testing.TB, instance *consensusv1.AccessInstance, want consensusv1.AccessState) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), storetest.Bound)
	defer cancel()
	var last *consensusv1.AccessStatus
	_, err := n.door.State().Wait(ctx, func(state door.State) bool {
		for _, status := range state.Access {
			if status.InstanceId == instance.InstanceId {
				last = status
				return status.State == want
			}
		}
		return false
	})
	if err != nil {
		t.Fatalf("instance %s is never %s; it is %v", instance.InstanceId, want, last)
	}
	return last.Reason
}

// open gives a set and waits until all of it is open.
func (n *node) open(t testing.TB, instances ...*consensusv1.AccessInstance) {
	t.Helper()
	n.set(t, instances...)
	for _, instance := range instances {
		n.await(t, instance, consensusv1.AccessState_ACCESS_STATE_OPEN)
	}
}

// brief bounds a call that is expected to fail because nobody answers it.
func brief(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// leaveSocket leaves a socket behind that nobody listens on, as a killed process does.
func leaveSocket(t *testing.T, path string) {
	t.Helper()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	listener.Close()
	if !exists(path) {
		t.Fatal("the socket is gone")
	}
}

// rawWatch begins a watch on a connection of its own and returns when etcd has made it.
func rawWatch(t *testing.T, ctx context.Context, socket, prefix string) pb.Watch_WatchClient {
	t.Helper()
	stream, err := pb.NewWatchClient(rawConnection(t, socket)).Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	err = stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
		Key: []byte(prefix), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(prefix)),
	}}})
	if err != nil {
		t.Fatal(err)
	}
	created, err := stream.Recv()
	if err != nil || !created.Created || created.Canceled {
		t.Fatalf("no watch: %v, %v", created, err)
	}
	return stream
}

// rawConnection reaches a socket without anything of etcd's client.
func rawConnection(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	connection, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	return connection
}
