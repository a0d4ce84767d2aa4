package node

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/events"
	"github.com/reeveproject/reeve/core/inorder"
	"github.com/reeveproject/reeve/core/nodeapi"
	"github.com/reeveproject/reeve/core/plugin/plugintest"
	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/core/unseal"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// late is a volume that waits for a key. Its Open ends with err when it is no longer wanted.
type late struct {
	storageRoom
	status event.Value[*clusterv1.StorageStatus]
	err    error
	closed int
}

func (l *late) Status() *event.Value[*clusterv1.StorageStatus] { return &l.status }
func (l *late) NodeID() string                                 { return "node" }
func (l *late) Disowned() *unseal.Disowned                     { return nil }

func (l *late) Open(ctx context.Context) (*unseal.Opened, error) {
	<-ctx.Done()
	return &unseal.Opened{}, l.err
}

func (l *late) Close(context.Context, bool) error {
	l.closed++
	return nil
}

// A node that cannot say that its volume waits for a key ends. What Open came to meanwhile is told, and a volume that was opened all the same is closed.
func TestAVolumeThatIsOpenedTooLate(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range inorder.Of(map[string]struct {
		opened  error
		records bool
		closed  int
		told    bool
	}{
		"opened":                   {closed: 1},
		"opened, and roles run on": {records: true},
		"failed":                   {opened: broken, told: true},
		"given up":                 {opened: context.Canceled},
		"a call given up":          {opened: status.Error(codes.Canceled, "")},
		"a child killed":           {opened: &exec.ExitError{}},
	}) {
		t.Run(name, func(t *testing.T) {
			dir := plugintest.Dir(t)
			socket, err := nodeapi.Listen(filepath.Join(dir, "s"))
			if err != nil {
				t.Fatal(err)
			}
			// So that nobody can be told anything.
			if err := socket.Close(); err != nil {
				t.Fatal(err)
			}
			if c.records {
				record := filepath.Join(dir, "instances", "store.1.json")
				if err := errors.Join(os.Mkdir(filepath.Dir(record), 0o700), os.WriteFile(record, nil, 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			room := &late{err: c.opened}
			room.status.Set(&clusterv1.StorageStatus{State: clusterv1.StorageState_STORAGE_STATE_LOCKED})
			n := &node{log: hclog.NewNullLogger(), storage: &storage.Storage{Layout: storage.Layout{Run: dir}}, room: room, socket: socket, events: new(events.Relay)}
			opened, err := n.open(t.Context())
			if opened != nil || err == nil || errors.Is(err, c.opened) != c.told || room.closed != c.closed {
				t.Errorf("%v, %v; closed %d times", opened, err, room.closed)
			}
		})
	}
}
