package consensustest

import (
	"context"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/reeveproject/reeve/sdk/consensus"
	"github.com/reeveproject/reeve/sdk/roletest"
)

// patience is the timeout for what should take milliseconds. It is long because test machines are busy.
const patience = 30 * time.Second

// Store is a running store.
type Store struct {
	t         testing.TB
	directory string
	server    *embed.Etcd  // nil while stopped
	api       *grpc.Server // nil while not served
	served    chan struct{}
}

// NewStore starts a store that runs until the test ends.
func NewStore(t testing.TB) *Store {
	t.Helper()
	// Not t.TempDir, whose path may be too long for a socket.
	directory, err := os.MkdirTemp("/tmp", "ct")
	if err != nil {
		t.Fatal(err)
	}
	s := &Store{t: t, directory: directory}
	t.Cleanup(func() {
		s.Stop()
		if err := os.RemoveAll(directory); err != nil {
			t.Error(err)
		}
	})
	s.Start()
	return s
}

func (s *Store) address(name string) url.URL {
	return url.URL{Scheme: "unix", Path: filepath.Join(s.directory, name)}
}

// Socket is the path of the socket that serves etcd's API, for roletest's Host.OpenStore.
func (s *Store) Socket() string { return s.address("store.sock").Path }

// Start restarts the store after Stop, with its data, and waits until it serves.
func (s *Store) Start() {
	s.t.Helper()
	if s.server != nil {
		return
	}
	config := embed.NewConfig()
	config.Name = "only"
	config.Dir = filepath.Join(s.directory, "data")
	// etcd's own listener would wait for clients' streams when it stops.
	config.ListenClientUrls, config.AdvertiseClientUrls = nil, []url.URL{s.address("store.sock")}
	peer := s.address("peer.sock")
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	config.InitialCluster = config.Name + "=" + peer.String()
	config.EnableGRPCGateway = false
	// A single member elects itself, and a test does not need durability.
	config.TickMs, config.ElectionMs = 10, 100
	config.UnsafeNoFsync = true
	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	server, err := embed.StartEtcd(config)
	if err != nil {
		s.t.Fatalf("the store does not start: %s", err)
	}
	s.server = server
	select {
	case <-server.Server.ReadyNotify():
	case err := <-server.Err():
		s.t.Fatalf("the store does not start: %s", err)
	case <-time.After(patience):
		s.t.Fatalf("the store has not started within %s", patience)
	}
	// Without a cluster version the store refuses clients. It gets one some time after it is ready, without a notification.
	for began := time.Now(); server.Server.ClusterVersion() == nil || !api.IsCapabilityEnabled(api.V3rpcCapability); time.Sleep(time.Millisecond) {
		if time.Since(began) > patience {
			s.t.Fatalf("the store has no version after %s", patience)
		}
	}
	listener, err := net.Listen("unix", s.Socket())
	if err != nil {
		s.t.Fatal(err)
	}
	s.api, s.served = v3rpc.Server(server.Server, nil, nil,
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: embed.DefaultGRPCKeepAliveMinTime}),
		// etcd must not be closed under a call that still runs.
		grpc.WaitForHandlers(true),
	), make(chan struct{})
	go func() {
		defer close(s.served)
		_ = s.api.Serve(listener) // ends with Stop
	}()
}

// Stop stops the store. It keeps its data.
func (s *Store) Stop() {
	if s.api != nil {
		s.api.Stop()
		<-s.served
		s.api = nil
	}
	if s.server != nil {
		s.server.Close()
		s.server = nil
	}
}

// Client returns a client as the role with this ConsensusUser has it. It is closed when the test ends.
func (s *Store) Client(t testing.TB, consensusUser string) *consensus.Client {
	t.Helper()
	host := roletest.NewHost(t)
	host.OpenStore(s.Socket(), consensusUser)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client, err := consensus.Dial(ctx, host.Instance(t, consensusUser))
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
