// Package etcdtest runs a real etcd in the process of a test: one member on Unix sockets, without authentication. It owns the server and its
// directory until Stop. Only tests, and programs for tests, import it.
package etcdtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api"
	"go.uber.org/zap"

	"github.com/reeveproject/reeve/sdk/leaktest"
)

// startWithin bounds a start, on a machine that does much else.
const startWithin = time.Minute

// Etcd is a server that can be stopped and started again on the same data.
type Etcd struct {
	directory string
	server    *embed.Etcd
	clients   atomic.Int64
}

// Start makes and starts a server.
func Start() (*Etcd, error) {
	// Not under the directory of the test: paths of Unix sockets end at 107 bytes.
	directory, err := os.MkdirTemp("", "etcd")
	if err != nil {
		return nil, err
	}
	etcd := &Etcd{directory: directory}
	if err := etcd.Resume(); err != nil {
		return nil, err
	}
	return etcd, nil
}

func (e *Etcd) address(name string) url.URL {
	return url.URL{Scheme: "unix", Path: filepath.Join(e.directory, name)}
}

// Resume starts the server again after Pause.
func (e *Etcd) Resume() error {
	config := embed.NewConfig()
	config.Name = "test"
	config.Dir = filepath.Join(e.directory, "data")
	config.ListenClientUrls = []url.URL{e.address("c")}
	config.AdvertiseClientUrls = config.ListenClientUrls
	config.ListenPeerUrls = []url.URL{e.address("p")}
	config.AdvertisePeerUrls = config.ListenPeerUrls
	peer := e.address("p")
	config.InitialCluster = config.Name + "=" + peer.String()
	config.EnableGRPCGateway = false
	config.TickMs, config.ElectionMs = 10, 100
	config.UnsafeNoFsync = true
	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	server, err := embed.StartEtcd(config)
	if err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	select {
	case <-server.Server.ReadyNotify():
		e.server = server
		return e.awaitVersion()
	case err := <-server.Err():
		return fmt.Errorf("start etcd: %w", err)
	case <-time.After(startWithin):
		server.Close()
		return fmt.Errorf("etcd did not start within %v", startWithin)
	}
}

// awaitVersion waits until the server has a version, without which it refuses its clients. It has one some time after it is ready, and tells nobody.
func (e *Etcd) awaitVersion() error {
	for began := time.Now(); e.server.Server.ClusterVersion() == nil || !api.IsCapabilityEnabled(api.V3rpcCapability); time.Sleep(time.Millisecond) {
		if time.Since(began) > startWithin {
			e.server.Close()
			return fmt.Errorf("etcd has no version within %v", startWithin)
		}
	}
	return nil
}

// Pause stops the server and keeps its data.
func (e *Etcd) Pause() { e.server.Close() }

// Stop stops the server and removes its data.
func (e *Etcd) Stop() error {
	e.server.Close()
	return os.RemoveAll(e.directory)
}

// Dial returns a client that sees all keys.
func (e *Etcd) Dial() (*clientv3.Client, error) {
	address := e.address("c")
	return clientv3.New(clientv3.Config{Endpoints: []string{address.String()}, Logger: zap.NewNop(), DialTimeout: startWithin})
}

// Raw returns a client that sees all keys. It is closed at the end of the test.
func (e *Etcd) Raw(t testing.TB) *clientv3.Client {
	t.Helper()
	client, err := e.Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return client
}

// Leases returns etcd's own API of leases. It ends with the test.
func (e *Etcd) Leases(t testing.TB) pb.LeaseClient {
	t.Helper()
	return clientv3.RetryLeaseClient(e.Raw(t))
}

// NewPrefix returns a prefix that no other test uses.
func (e *Etcd) NewPrefix() string { return fmt.Sprintf("/reeve/users/curator-%d/", e.clients.Add(1)) }

// Client returns a client that sees the keys below prefix from the root, as a role's client does. It is closed at the end of the test.
func (e *Etcd) Client(t testing.TB, prefix string) *clientv3.Client {
	t.Helper()
	return Below(e.Raw(t), prefix)
}

// Below returns a client that sees the keys below prefix from the root. It ends with raw.
func Below(raw *clientv3.Client, prefix string) *clientv3.Client {
	client := clientv3.NewCtxClient(raw.Ctx())
	client.KV = namespace.NewKV(raw.KV, prefix)
	client.Watcher = namespace.NewWatcher(raw.Watcher, prefix)
	client.Lease = namespace.NewLease(raw.Lease, prefix)
	client.Maintenance = raw.Maintenance
	return client
}

// Main is for TestMain: it runs the tests of a package with a server that it puts into into, and fails if a goroutine is left.
func Main(m *testing.M, into **Etcd) { leaktest.VerifyTestMain(withEtcd{m, into}) }

type withEtcd struct {
	m    *testing.M
	into **Etcd
}

// Run implements goleak.TestingM.
func (w withEtcd) Run() int {
	etcd, err := Start()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	*w.into = etcd
	code := w.m.Run()
	if err := etcd.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// Compact drops the history of the store before its present revision.
func (e *Etcd) Compact(ctx context.Context, client *clientv3.Client) error {
	got, err := client.Get(ctx, "none")
	if err != nil {
		return err
	}
	_, err = client.Compact(ctx, got.Header.GetRevision())
	return err
}

// Fill raises the alarm of a server that is full: it then takes deletes only.
func (e *Etcd) Fill(ctx context.Context, client *clientv3.Client) error {
	status, err := client.Status(ctx, client.Endpoints()[0])
	if err != nil {
		return err
	}
	_, err = e.server.Server.Alarm(ctx, &pb.AlarmRequest{
		Action: pb.AlarmRequest_ACTIVATE, MemberID: status.Header.GetMemberId(), Alarm: pb.AlarmType_NOSPACE,
	})
	return err
}

// Disarm takes the alarm back.
func (e *Etcd) Disarm(ctx context.Context, client *clientv3.Client) error {
	_, err := client.AlarmDisarm(ctx, &clientv3.AlarmMember{})
	return err
}
