// Package storetest opens real stores for the tests of this plugin, in directories that processes of other users can enter, with raft's times short.
package storetest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
)

// Raft's times in tests: ten times faster than by default, since all is on one machine.
const (
	Heartbeat = 10 * time.Millisecond
	Election  = 100 * time.Millisecond
)

// Bound is how long a test waits for what should happen at once. It is only ever reached by a test that fails.
const Bound = 2 * time.Minute

// RestBound is how long a test waits for a store that is full to have room again: its database is rewritten for that, which a busy disk makes long.
const RestBound = 5 * time.Minute

// Plan is the plan of a new store with the cluster user "curator".
var Plan = store.Plan{ClusterID: "cluster-a", NodeID: "reeve-1", ClusterUser: "curator", New: true}

// Directory makes a directory that goes with the test. Its path is short, since those of sockets must be, and every user may enter it.
func Directory(t testing.TB) string {
	t.Helper()
	directory, err := os.MkdirTemp("/tmp", "rv")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(directory); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(directory, 0o711); err != nil {
		t.Fatal(err)
	}
	return directory
}

// Mkdir makes a private directory below another, if it is not there, and returns its path.
func Mkdir(t testing.TB, elements ...string) string {
	t.Helper()
	path := filepath.Join(elements...)
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// Config is that of a store in a directory made by Directory.
func Config(t testing.TB, directory string) store.Config {
	t.Helper()
	return store.Config{
		Log:              Log(t),
		Directory:        Mkdir(t, directory, "data"),
		RuntimeDirectory: Mkdir(t, directory, "run"),
		Heartbeat:        Heartbeat,
		Election:         Election,
		Version:          "0.0.0-test",
	}
}

// Open opens a store and keeps its status. The returned function, which may be called more than once, closes it; the end of the test does, too.
func Open(t testing.TB, directory string, plan store.Plan) (*store.Store, func()) {
	t.Helper()
	return OpenWith(t, Config(t, directory), plan)
}

// Small is a Config whose store is soon full, and soon looks whether it can be helped.
func Small(t testing.TB, directory string) store.Config {
	t.Helper()
	config := Config(t, directory)
	config.Quota, config.RoomInterval, config.PauseShare = store.MinQuota, 50*time.Millisecond, 1
	return config
}

// OpenWith is Open with a configuration of the test's own.
func OpenWith(t testing.TB, config store.Config, plan store.Plan) (*store.Store, func()) {
	t.Helper()
	s, err := store.Open(Context(t), config, plan)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	stop := sync.OnceFunc(func() {
		cancel()
		group.Wait()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return s, stop
}

// Recover makes room in a store, again as long as the store says that it has no quorum, or etcd that it took too long: so it is with one member on a machine
// that stands still for a moment.
func Recover(ctx context.Context, s *store.Store) (store.Recovered, error) {
	var before int64
	for {
		recovered, err := s.Recover(ctx)
		before = max(before, recovered.Before) // a call that timed out may have done its work
		recovered.Before = before
		if !errors.Is(err, store.ErrNoQuorum) && !errors.Is(err, rpctypes.ErrTimeout) || ctx.Err() != nil {
			return recovered, err
		}
	}
}

// Context is done with the test, or when it should long have been.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), RestBound+Bound)
	t.Cleanup(cancel)
	return ctx
}

// Log keeps the log of a test out of sight unless it fails.
func Log(t testing.TB) hclog.Logger {
	w := &buffer{}
	t.Cleanup(func() {
		if t.Failed() {
			w.mu.Lock()
			defer w.mu.Unlock()
			t.Logf("the log:\n%s", w.content)
		}
	})
	return hclog.New(&hclog.LoggerOptions{Name: t.Name(), Output: w, Level: hclog.Info})
}

type buffer struct {
	mu      sync.Mutex
	content []byte
}

// maxLog keeps the log of a long test readable.
const maxLog = 64 << 10

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.content = append(b.content, p...); len(b.content) > maxLog {
		b.content = b.content[len(b.content)-maxLog:]
	}
	return len(p), nil
}

// Dial returns an etcd client without any namespace on a socket.
func Dial(t testing.TB, socket string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   []string{"unix://" + socket},
		DialOptions: []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())},
		Logger:      zap.NewNop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// Eventually waits until a condition holds that nothing tells of.
func Eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	EventuallyWithin(t, Bound, what, condition)
}

// EventuallyWithin waits for so long at most.
func EventuallyWithin(t testing.TB, bound time.Duration, what string, condition func() bool) {
	t.Helper()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(bound)
	for !condition() {
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("waited %s in vain: %s", bound, what)
		}
	}
}
