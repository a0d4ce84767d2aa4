package storetest

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"

	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/plugins/consensus/internal/zaplog"
)

// Second is another member of a store, of which nothing but etcd runs. Without it a store of two has no quorum.
type Second struct {
	t         testing.TB
	store     *store.Store
	directory string
	name      string
	cluster   string
	mu        sync.Mutex
	etcd      *embed.Etcd // nil: stopped
}

// Join adds a member to a store that was opened in a directory. etcd takes the addresses of members that it reaches through sockets for relative paths with a port, so
// the process works in the directory from then on.
func Join(t testing.TB, s *store.Store, directory string) *Second {
	t.Helper()
	t.Chdir(directory)
	if err := os.Symlink(filepath.Join("run", "peer", "raft.sock"), "first:1"); err != nil {
		t.Fatal(err)
	}
	ctx := store.Root(Context(t))
	if _, err := s.Client().MemberUpdate(ctx, uint64(s.Server().MemberID()), []string{"unix://first:1"}); err != nil {
		t.Fatal(err)
	}
	return join(t, s, directory, Plan.NodeID+"=unix://first:1", "second")
}

// Join adds one more member.
func (m *Second) Join(name string) *Second {
	m.t.Helper()
	return join(m.t, m.store, m.directory, m.cluster, name)
}

func join(t testing.TB, s *store.Store, directory, cluster, name string) *Second {
	t.Helper()
	address := "unix://" + name + ":1"
	ctx := store.Root(Context(t))
	// etcd drops a proposal that an election overtakes, and tells nobody. It may also refuse a second one because the first was made.
	Eventually(t, "the "+name+" member is added", func() bool {
		if isMember(s, address) {
			return true
		}
		attempt, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := s.Client().MemberAdd(attempt, []string{address}); err != nil {
			t.Logf("adding the %s member: %v", name, err)
		}
		return isMember(s, address)
	})
	member := &Second{t: t, store: s, directory: directory, name: name, cluster: cluster + "," + name + "=" + address}
	member.Start()
	t.Cleanup(member.Stop)
	return member
}

// isMember reports whether the store has a member at an address.
func isMember(s *store.Store, address string) bool {
	return slices.ContainsFunc(s.Server().Cluster().Members(), func(m *membership.Member) bool { return slices.Contains(m.PeerURLs, address) })
}

// Start starts the member, or starts it again, and returns when it serves.
func (m *Second) Start() {
	m.t.Helper()
	config := embed.NewConfig()
	config.Name = m.name
	config.Dir = filepath.Join(m.directory, m.name+"-data")
	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zaplog.New(Log(m.t)))
	config.TickMs, config.ElectionMs = uint(Heartbeat.Milliseconds()), uint(Election.Milliseconds())
	address := []url.URL{{Scheme: "unix", Host: m.name + ":1"}}
	config.ListenPeerUrls, config.AdvertisePeerUrls = address, address
	config.ListenClientUrls, config.AdvertiseClientUrls = nil, address
	config.EnableGRPCGateway = false
	config.InitialCluster, config.ClusterState = m.cluster, embed.ClusterStateFlagExisting
	config.ClientTLSInfo.ClientCertAuth, config.AuthToken = true, "simple"
	started, err := embed.StartEtcd(config)
	if err != nil {
		m.t.Fatal(err)
	}
	m.mu.Lock()
	m.etcd = started
	m.mu.Unlock()
	select {
	case <-started.Server.ReadyNotify():
	case <-Context(m.t).Done():
		m.t.Fatalf("the %s member does not serve", m.name)
	}
}

// Stop stops the member, if it runs.
func (m *Second) Stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.etcd != nil {
		m.etcd.Close()
		m.etcd = nil
	}
}

// Etcd is the member.
func (m *Second) Etcd() *embed.Etcd {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.etcd
}
