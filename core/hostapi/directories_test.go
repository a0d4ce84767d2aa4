package hostapi_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/hostapi"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// unreadDirectory begins a stream of the directory on a connection of its own, and reads nothing of it. It returns when the core has begun to send.
func unreadDirectory(t *testing.T, socket string) grpc.ServerStreamingClient[hostv1.WatchDirectoryResponse] {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStaticStreamWindowSize(64<<10), grpc.WithStaticConnWindowSize(64<<10), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	stream, err := hostv1.NewHostServiceClient(conn).WatchDirectory(within(t), &hostv1.WatchDirectoryRequest{})
	if err == nil {
		_, err = stream.Header()
	}
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// largeDirectory is a directory of 8 MiB.
func largeDirectory(revision uint64) *hostv1.Directory {
	return &hostv1.Directory{Revision: revision, Nodes: []*hostv1.DirectoryNode{{NodeId: strings.Repeat("n", 8<<20)}}}
}

// TestUnreadDirectories: a role that reads nothing of its streams makes the core hold only so many directories: the connections with the oldest ones end. It takes nothing from roles that read.
func TestUnreadDirectories(t *testing.T) {
	n := newNode(t, nil)
	hostile := n.open(remitOf("hostile.1"))
	reads, err := n.client(remitOf("reads.1")).WatchDirectory(within(t), &hostv1.WatchDirectoryRequest{}, grpc.MaxCallRecvMsgSize(16<<20))
	if err != nil {
		t.Fatal(err)
	}
	var unread []grpc.ServerStreamingClient[hostv1.WatchDirectoryResponse]
	for revision := range uint64(hostapi.MaxConnections) {
		n.directory.Set(largeDirectory(revision))
		got, err := reads.Recv()
		if err != nil || got.GetDirectory().GetRevision() != revision {
			t.Fatalf("a role that reads gets revision %d, and not %d: %v", got.GetDirectory().GetRevision(), revision, err)
		}
		unread = append(unread, unreadDirectory(t, hostile))
		if editions, bytes := n.server.UnreadDirectories(); bytes > 32<<20 || editions > 4 {
			t.Errorf("%d directories of %d bytes are held for those who do not read", editions, bytes)
		}
	}
	// The last one still gets what it asked for. The first one was cut off in the midst of it.
	last := len(unread) - 1
	if got, err := unread[last].Recv(); err != nil || got.GetDirectory().GetRevision() != uint64(last) {
		t.Errorf("the newest stream: %v", err)
	}
	if _, err := unread[0].Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the oldest stream: %v", err)
	}
}

// TestOneDirectoryForAll: a directory is encoded once for all streams, and nothing is kept of what was read or whose connection has ended.
func TestOneDirectoryForAll(t *testing.T) {
	n := newNode(t, nil)
	socket := n.open(remitOf("role.1"))
	n.directory.Set(largeDirectory(1))
	first, second := unreadDirectory(t, socket), unreadDirectory(t, socket)
	if editions, _ := n.server.UnreadDirectories(); editions != 0 {
		t.Errorf("%d directories are held that are not the newest", editions)
	}
	for _, stream := range []grpc.ServerStreamingClient[hostv1.WatchDirectoryResponse]{first, second} {
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	third := unreadDirectory(t, socket)
	n.directory.Set(largeDirectory(2))
	for _, stream := range []grpc.ServerStreamingClient[hostv1.WatchDirectoryResponse]{first, second} {
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	if editions, bytes := n.server.UnreadDirectories(); editions != 1 || bytes < 8<<20 || bytes > 9<<20 {
		t.Errorf("%d directories of %d bytes are held, and should one, for the one who does not read", editions, bytes)
	}
	if got, err := third.Recv(); err != nil || got.GetDirectory().GetRevision() != 1 {
		t.Fatalf("%d, %v", got.GetDirectory().GetRevision(), err)
	}
	if got, err := third.Recv(); err != nil || got.GetDirectory().GetRevision() != 2 {
		t.Fatalf("%d, %v", got.GetDirectory().GetRevision(), err)
	}
	// It was given back before the next one was sent.
	if editions, bytes := n.server.UnreadDirectories(); editions != 0 || bytes != 0 {
		t.Errorf("%d directories of %d bytes are held, and everything was read", editions, bytes)
	}
}

// TestUnreadDirectoryOfAnEndedRole: what a role has not read goes with its socket.
func TestUnreadDirectoryOfAnEndedRole(t *testing.T) {
	n := newNode(t, nil)
	n.directory.Set(largeDirectory(1))
	socket, closeSocket, err := n.server.Open(remitOf("ends.1"))
	if err != nil {
		t.Fatal(err)
	}
	unreadDirectory(t, socket)
	n.directory.Set(largeDirectory(2))
	unreadDirectory(t, n.open(remitOf("other.1")))
	if editions, _ := n.server.UnreadDirectories(); editions != 1 {
		t.Errorf("%d directories are held for the role", editions)
	}
	closeSocket()
	if editions, bytes := n.server.UnreadDirectories(); editions != 0 || bytes != 0 {
		t.Errorf("%d directories of %d bytes are held for a role that has ended", editions, bytes)
	}
}
