package store

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/reeveproject/reeve/plugins/consensus/internal/zaplog"
)

// Raft's times where none are configured: etcd's own.
const (
	DefaultHeartbeat = 100 * time.Millisecond
	DefaultElection  = time.Second
)

// beginning is how a member comes to its data.
type beginning struct {
	// make has it make a new store, join take over that of others; neither: its data is there.
	make bool
	join *joinPlan
	// peers is by what it speaks to the others.
	peers transport.TLSInfo
}

// joinPlan is whom a member finds when it takes the store over.
type joinPlan struct{ url, cluster string }

// election is raft's time, as it is configured.
func (c Config) election() time.Duration {
	if c.Election == 0 {
		return DefaultElection
	}
	return c.Election
}

// dialTimeout is how long a connection to another member may take: as etcd has it, a second longer than an election.
func (s *Store) dialTimeout() time.Duration { return time.Second + s.config.election() }

// settings is etcd's configuration. All of etcd's extras are off: the HTTP gateway, profiling, tracing and metrics listeners.
func settings(config Config, plan Plan, how beginning) (*embed.Config, error) {
	socket, err := peerSocket(config.RuntimeDirectory)
	if err != nil {
		return nil, err
	}
	heartbeat, election := config.Heartbeat, config.election()
	if heartbeat == 0 {
		heartbeat = DefaultHeartbeat
	}

	settings := embed.NewConfig()
	settings.Name = plan.NodeID
	settings.Dir = etcdDirectory(config.Directory)
	settings.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zaplog.New(config.Log))
	settings.TickMs = uint(heartbeat.Milliseconds())
	settings.ElectionMs = uint(election.Milliseconds())

	// etcd takes the path of a peer socket from the URL's host. The address that is stored with the member stays the same
	// while the socket's path changes with every instance; with one member nobody dials it.
	settings.ListenPeerUrls = []url.URL{{Scheme: "unix", Host: socket}}
	settings.AdvertisePeerUrls = []url.URL{{Scheme: "unix", Host: plan.NodeID}}
	settings.PeerTLSInfo = how.peers
	// No listener for clients; the address that etcd wants to publish leads nowhere.
	settings.ListenClientUrls = nil
	settings.AdvertiseClientUrls = []url.URL{{Scheme: "unix", Host: plan.NodeID}}
	settings.EnableGRPCGateway = false

	settings.InitialCluster = settings.InitialClusterFromName(plan.NodeID)
	settings.InitialClusterToken = plan.ClusterID
	settings.ClusterState = embed.ClusterStateFlagExisting
	switch {
	case how.make:
		settings.ClusterState = embed.ClusterStateFlagNew
	case how.join != nil:
		own, err := url.Parse(how.join.url)
		if err != nil {
			return nil, fmt.Errorf("the member's own address: %w", err)
		}
		settings.AdvertisePeerUrls = []url.URL{*own}
		settings.InitialCluster = how.join.cluster
	}
	// etcd's own check of what a change of members would do to the quorum waits five seconds after each one. The reconciler has its own, which asks the
	// members at that moment.
	settings.StrictReconfigCheck = false

	// Who a client is comes from its connection (see Identity). etcd acts for itself by a token, to revoke leases that have expired, so
	// there must be a provider of tokens; since a token would count for more than the connection, the door takes those that clients send
	// off their calls.
	settings.ClientTLSInfo.ClientCertAuth = true
	settings.AuthToken = "simple"

	settings.AutoCompactionMode = embed.CompactorModePeriodic
	settings.AutoCompactionRetention = compactAfter.String()
	settings.CompactionBatchLimit, settings.CompactionSleepInterval = compactionBatch, compactionPause

	settings.SnapshotCount, settings.SnapshotCatchUpEntries = snapshotCount, snapshotCatchUp
	settings.MaxWalFiles, settings.MaxSnapFiles = logFiles, logFiles
	return settings, nil
}

// peerSocket makes the directory for etcd's peers, which only this user can enter, and returns the path of the socket in it: on a TCP port any
// process of the machine could speak raft to the member.
func peerSocket(runtimeDirectory string) (string, error) {
	directory := filepath.Join(runtimeDirectory, "peer")
	if err := os.Mkdir(directory, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("make the directory for etcd's peers: %w", err)
	}
	if err := os.Chmod(directory, 0o700); err != nil { // whatever the umask was, or somebody else made
		return "", fmt.Errorf("make the directory for etcd's peers: %w", err)
	}
	return filepath.Join(directory, "raft.sock"), nil
}
