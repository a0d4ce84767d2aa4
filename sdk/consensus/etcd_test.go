package consensus_test

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
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	"github.com/reeveproject/reeve/sdk/event"
	"github.com/reeveproject/reeve/sdk/leaktest"
)

func TestMain(m *testing.M) { leaktest.VerifyTestMain(m) }

// patience is how long the tests wait for what should take milliseconds.
const patience = 2 * time.Minute

func shortly(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// store is a real etcd of one member that serves on a Unix socket.
type store struct {
	t         *testing.T
	directory string
	etcd      *embed.Etcd
}

func newStore(t *testing.T) *store {
	t.Helper()
	s := &store{t: t, directory: directory(t)}
	s.start()
	t.Cleanup(s.stop)
	return s
}

func (s *store) socket() string { return filepath.Join(s.directory, "consensus.sock") }

func (s *store) start() {
	s.t.Helper()
	at := func(name string) []url.URL {
		return []url.URL{{Scheme: "unix", Path: filepath.Join(s.directory, name)}}
	}
	config := embed.NewConfig()
	config.Name = "only"
	config.Dir = filepath.Join(s.directory, "etcd")
	config.ListenClientUrls, config.AdvertiseClientUrls = at("consensus.sock"), at("consensus.sock")
	config.ListenPeerUrls, config.AdvertisePeerUrls = at("peer.sock"), at("peer.sock")
	config.InitialCluster = "only=" + config.AdvertisePeerUrls[0].String()
	config.TickMs, config.ElectionMs = 10, 100
	config.UnsafeNoFsync = true
	config.LogLevel, config.LogOutputs = "panic", []string{os.DevNull}
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		s.t.Fatal(err)
	}
	s.etcd = etcd
	select {
	case <-etcd.Server.ReadyNotify():
	case err := <-etcd.Err():
		s.t.Fatal(err)
	case <-time.After(patience):
		s.t.Fatal("etcd does not become ready")
	}
	// Without a version it refuses its clients. It has one some time after it is ready, and tells nobody.
	for ctx := shortly(s.t); etcd.Server.ClusterVersion() == nil || !api.IsCapabilityEnabled(api.V3rpcCapability); time.Sleep(time.Millisecond) {
		if ctx.Err() != nil {
			s.t.Fatal("etcd has no version")
		}
	}
}

func (s *store) stop() {
	if s.etcd != nil {
		s.etcd.Close()
		s.etcd = nil
	}
}

// core is the part of a node's core that Dial needs, on a Unix socket.
type core struct {
	hostv1.UnimplementedHostServiceServer
	answer  event.Value[*hostv1.OpenConsensusResponse]
	refusal error
	socket  string
	server  *grpc.Server
	served  chan struct{}
	conn    *grpc.ClientConn
}

func newCore(t *testing.T) *core {
	t.Helper()
	c := &core{socket: filepath.Join(directory(t), "host.sock")}
	c.serve(t)
	conn, err := grpc.NewClient("unix:"+c.socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	c.conn = conn
	t.Cleanup(func() {
		_ = conn.Close()
		c.stop()
	})
	return c
}

func (c *core) serve(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("unix", c.socket)
	if err != nil {
		t.Fatal(err)
	}
	server, served := grpc.NewServer(), make(chan struct{})
	c.server, c.served = server, served
	hostv1.RegisterHostServiceServer(server, c)
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
}

func (c *core) stop() {
	c.server.Stop()
	<-c.served
}

// Client implements consensus.Host.
func (c *core) Client() hostv1.HostServiceClient { return hostv1.NewHostServiceClient(c.conn) }

// OpenConsensus implements hostv1.HostServiceServer.
func (c *core) OpenConsensus(_ *hostv1.OpenConsensusRequest, stream grpc.ServerStreamingServer[hostv1.OpenConsensusResponse]) error {
	if c.refusal != nil {
		return c.refusal
	}
	watcher := c.answer.Watch()
	for {
		now, err := watcher.Next(stream.Context())
		if err != nil {
			return err
		}
		if err := stream.Send(now); err != nil {
			return err
		}
	}
}

func open(s *store) *hostv1.OpenConsensusResponse {
	return &hostv1.OpenConsensusResponse{State: &hostv1.OpenConsensusResponse_Open{Open: &hostv1.ConsensusOpen{
		Socket: s.socket(), ConsensusUser: "lighthouse", Prefix: "/reeve/users/lighthouse/",
	}}}
}

func unavailable(reason hostv1.ConsensusUnavailableReason, message string) *hostv1.OpenConsensusResponse {
	return &hostv1.OpenConsensusResponse{State: &hostv1.OpenConsensusResponse_Unavailable{
		Unavailable: &hostv1.ConsensusUnavailable{Reason: reason, Message: message},
	}}
}

// directory makes a directory with a path short enough for sockets.
func directory(t *testing.T) string {
	t.Helper()
	path, err := os.MkdirTemp("/tmp", "rc")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(path) })
	return path
}
