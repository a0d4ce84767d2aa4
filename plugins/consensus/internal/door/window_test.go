package door_test

import (
	"context"
	"encoding/binary"
	"net"
	"strings"
	"sync"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
)

// listening keeps what a connection reads.
type listening struct {
	net.Conn
	mu   *sync.Mutex
	read *[]byte
}

func (l listening) Read(into []byte) (int, error) {
	n, err := l.Conn.Read(into)
	l.mu.Lock()
	defer l.mu.Unlock()
	*l.read = append(*l.read, into[:n]...)
	return n, err
}

// TestWindowsStaySmall writes much, by which gRPC would widen the windows of all calls to come: those that wait for their turn would have megabytes in memory.
func TestWindowsStaySmall(t *testing.T) {
	_, ant, _ := hungry(t)
	var mu sync.Mutex
	var read []byte
	connection, err := grpc.NewClient("passthrough:///"+ant.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, path string) (net.Conn, error) {
			made, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
			return listening{made, &mu, &read}, err
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	for range 30 {
		if _, err := apiOf(connection).Put(storetest.Context(t), &pb.PutRequest{Key: []byte(ownKey), Value: []byte(strings.Repeat("x", 1<<20))}); err != nil {
			t.Fatal(err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	const frameSettings, initialWindow = 4, 4
	for rest := read; len(rest) >= 9; {
		length := int(rest[0])<<16 | int(rest[1])<<8 | int(rest[2])
		if len(rest) < 9+length {
			break
		}
		if payload := rest[9 : 9+length]; rest[3] == frameSettings {
			for ; len(payload) >= 6; payload = payload[6:] {
				if size := binary.BigEndian.Uint32(payload[2:]); binary.BigEndian.Uint16(payload) == initialWindow && size > 64<<10 {
					t.Errorf("a call may send %d KiB before its turn", size>>10)
				}
			}
		}
		rest = rest[9+length:]
	}
}
