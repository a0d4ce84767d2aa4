package node

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/reeveproject/reeve/core/access"
	"github.com/reeveproject/reeve/core/cluster"
	"github.com/reeveproject/reeve/core/hostapi"
	"github.com/reeveproject/reeve/core/identity"
	"github.com/reeveproject/reeve/core/membership"
	"github.com/reeveproject/reeve/core/network"
	"github.com/reeveproject/reeve/core/nodeapi"
	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/roles"
	"github.com/reeveproject/reeve/core/seal"
	"github.com/reeveproject/reeve/core/storage"
	names "github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// uidRanges is the file in which the nodes of a host reserve ranges of user IDs, so that no two of them share one. Only used as root.
const uidRanges = "/var/lib/reeve/uid-ranges"

// Config is what a node starts from.
type Config struct {
	Log        hclog.Logger
	Parameters *nodev1.Parameters
	// Version is the version of this program.
	Version string
}

// Run runs a node until the context ends, then stops its roles and returns nil. It returns an error if the node cannot start, or cannot go
// on; its roles are then stopped too.
func Run(ctx context.Context, config Config) (err error) {
	start := time.Now()
	log := config.Log
	base, err := open(config.Parameters, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, base.storage.Close()) }()
	nodeID := names.NodeID(base.sealed.NodeKey.Public().(ed25519.PublicKey))
	log.Info("node", "node", nodeID, "cluster", base.sealed.ClusterID, "phase", base.sealed.Phase, "version", config.Version)

	plugins, err := openPlugins(base, nodeID, start, log)
	if err != nil {
		return err
	}
	// What an earlier core left running is stopped before anything else runs: there is one instance of a role at a time.
	if err := plugins.launcher.StopRecorded(ctx); err != nil {
		return unlessStopped(ctx, err)
	}
	known, bootstrap, err := prepare(ctx, config.Parameters, base, plugins)
	if err != nil {
		return unlessStopped(ctx, err)
	}

	// The values that this package writes itself.
	var (
		desired    event.Value[roles.Desired]
		nodeStatus event.Value[*clusterv1.NodeStatus]
		fullStatus event.Value[*nodev1.Status]
		directory  event.Value[*hostv1.Directory]
	)
	net := network.New(network.Config{Log: log.Named("network"), Addresses: config.Parameters.GetNetwork().GetAddresses()})
	ids, err := identity.New(identity.Config{
		Log: log.Named("identity"), Directory: base.storage.Identity(), Key: base.sealed.NodeKey, ClusterID: base.sealed.ClusterID, Owner: base.sealed.Owner,
		Member: base.sealed.Phase == seal.Member,
	})
	if err != nil {
		return err
	}
	hosts := &hostSockets{}
	reconciler := roles.New(roles.Config{Log: log.Named("roles"), Launcher: roles.FromPlugin(plugins.launcher), Hosts: hosts, Desired: &desired})
	client := cluster.New(cluster.Config{
		Log: log.Named("cluster"), Identity: ids.Identity(), Capabilities: reconciler.Capabilities(), Status: &nodeStatus,
	})
	member := membership.New(membership.Config{
		Log: log.Named("membership"), Sealed: base.seal, Configuration: *base.sealed, Identity: ids.Identity(), Capabilities: reconciler.Capabilities(),
		Contact: client.Contact(), ClusterUser: known.clusterUser(), Bootstrap: bootstrap,
	})
	doors := access.New(access.Config{
		Log: log, RunDir: base.storage.Run, CoreStart: start, Instances: reconciler.Instances(), Capabilities: reconciler.Capabilities(),
		Membership: member.Status(),
	})
	host, err := hostapi.New(hostapi.Config{
		Log: log, RunDir: base.storage.Run, Membership: member.Status(), Directory: &directory, Network: net.Addresses(), Access: doors.States(),
	})
	if err != nil {
		return err
	}
	hosts.HostSockets = host
	api, err := nodeapi.New(nodeapi.Config{
		Log: log.Named("nodeapi"), Socket: base.storage.NodeSocket(), Listen: config.Parameters.GetNetwork().GetApiListen(), Status: &fullStatus,
		Identity: ids.Identity(), Import: plugins.importPlugin, LogPath: base.logPath,
	})
	if err != nil {
		return err
	}

	group, groupCtx := errgroup.WithContext(context.WithoutCancel(ctx))
	group.Go(func() error { return net.Run(groupCtx) })
	group.Go(func() error { return ids.Run(groupCtx, member.Credentials(), client.Credentials()) })
	group.Go(func() error { return member.Run(groupCtx) })
	group.Go(func() error { return doors.Run(groupCtx) })
	group.Go(func() error { return client.Run(groupCtx) })
	group.Go(func() error { return api.Run(groupCtx) })
	group.Go(func() error {
		return chooser{
			log: log.Named("desired"), path: base.storage.Assignment(), known: known, phase: member.Phase(), membership: member.Status(),
			problem: member.Problem(), view: client.View(), desired: &desired,
		}.run(groupCtx)
	})
	group.Go(func() error {
		return reporter{
			start: start, version: config.Version, volume: string(base.sealed.VolumeKind), isolation: plugins.isolation(), apiAddress: api.Address(),
			addresses: net.Addresses(), instances: reconciler.Instances(), membership: member.Status(), identity: ids.Identity(), curators: client.Curators(),
			view: client.View(), node: &nodeStatus, full: &fullStatus, directory: &directory,
		}.run(groupCtx)
	})
	group.Go(func() error {
		// The roles end first, while everything that they may still need is there.
		rolesCtx, cancel := context.WithCancel(groupCtx)
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		if err := reconciler.Run(rolesCtx); err != nil {
			return err
		}
		return errStopped
	})
	if err := group.Wait(); !errors.Is(err, errStopped) {
		return err
	}
	log.Info("stopped")
	return nil
}

// unlessStopped returns err, unless the context has ended: then nothing is wrong, the node was stopped while it started.
func unlessStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// errStopped ends the group of rooms when all roles have been stopped as asked.
var errStopped = errors.New("node: stopped")

// hostSockets breaks the circle between the reconciler, which opens host sockets, and their server, which watches what the reconciler
// publishes. It is set before either runs.
type hostSockets struct{ roles.HostSockets }

// base is a node's storage and what it holds of the node.
type base struct {
	storage *storage.Storage
	seal    *seal.Store
	sealed  *seal.Configuration
	log     hclog.Logger
}

// open takes the node's directories and reads, or makes, what the node must know to start.
func open(parameters *nodev1.Parameters, log hclog.Logger) (*base, error) {
	held, err := storage.Open(storage.NewLayout(parameters.GetDirectories()))
	if err != nil {
		return nil, err
	}
	b := &base{storage: held, seal: seal.NewStore(held.Configuration(), seal.File{}), log: log}
	if err := b.openVolume(parameters); err != nil {
		return nil, errors.Join(err, held.Close())
	}
	return b, nil
}

func (b *base) openVolume(parameters *nodev1.Parameters) error {
	var err error
	if b.sealed, err = b.seal.Load(); err != nil {
		return err
	}
	if b.sealed == nil {
		if b.sealed, err = newConfiguration(parameters.GetBootstrap()); err != nil {
			return err
		}
		// From here on, this is the node that it is, whenever it is stopped.
		if err := b.seal.Save(b.sealed); err != nil {
			return err
		}
	}
	if b.sealed.VolumeKind == storage.Plain {
		b.log.Warn("the volume is not encrypted (kind plain)")
	}
	nodeID := names.NodeID(b.sealed.NodeKey.Public().(ed25519.PublicKey))
	return b.storage.OpenVolume(storage.Volume{Kind: b.sealed.VolumeKind, ClusterID: b.sealed.ClusterID, NodeID: nodeID}, b.sealed.Phase == seal.Forming)
}

// newConfiguration makes the key of a new node and the ID of its new cluster.
func newConfiguration(bootstrap *nodev1.Bootstrap) (*seal.Configuration, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("node: make the node key: %w", err)
	}
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, fmt.Errorf("node: make the cluster ID: %w", err)
	}
	return &seal.Configuration{
		ClusterID: hex.EncodeToString(id[:]), NodeKey: key, Owner: bootstrap.GetOwnerPublicKey(), VolumeKind: storage.Plain, Phase: seal.Forming,
	}, nil
}

// logPath is where the log of a role is kept, and whether there is one.
func (b *base) logPath(role string) (string, bool) {
	if !names.ValidName(role) {
		return "", false
	}
	path := b.storage.Log(role)
	_, err := os.Stat(path)
	return path, err == nil
}

// plugins is what runs the plugins of a node.
type plugins struct {
	store    *plugin.Store
	users    *plugin.Users
	launcher *plugin.Launcher
}

func openPlugins(b *base, nodeID string, start time.Time, log hclog.Logger) (*plugins, error) {
	store, err := plugin.OpenStore(b.storage.Plugins())
	if err != nil {
		return nil, err
	}
	users, err := plugin.ReserveUsers(uidRanges, b.storage.Users(), b.storage.Data)
	if err != nil {
		return nil, err
	}
	launcher, err := plugin.NewLauncher(plugin.Config{
		Log: log.Named("plugin"), Store: store, Users: users, RunDir: b.storage.Run, DataDir: b.storage.Data, NodeID: nodeID, CoreStart: start,
	})
	if err != nil {
		return nil, err
	}
	return &plugins{store: store, users: users, launcher: launcher}, nil
}

func (p *plugins) isolation() clusterv1.Isolation {
	if p.users.Shared() {
		return clusterv1.Isolation_ISOLATION_SHARED_UID
	}
	return clusterv1.Isolation_ISOLATION_OWN_UID
}

// importPlugin keeps an executable by its digest and asks it what it is.
func (p *plugins) importPlugin(ctx context.Context, executable io.Reader) (string, *rolev1.Manifest, error) {
	digest, err := p.store.Import(ctx, executable)
	if err != nil {
		return "", nil, err
	}
	manifest, err := p.launcher.Describe(ctx, digest)
	if err != nil {
		return "", nil, err
	}
	return digest, manifest, nil
}

// Reap stops whatever a core that is gone for good left running on these directories. *storage.InUseError if a core runs.
func Reap(ctx context.Context, parameters *nodev1.Parameters, log hclog.Logger) (err error) {
	layout := storage.NewLayout(parameters.GetDirectories())
	configuration, err := seal.NewStore(layout.Configuration(), seal.File{}).Load()
	if err != nil || configuration == nil {
		// Where there is no node, there is nothing of it.
		return err
	}
	held, err := storage.Open(layout)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, held.Close()) }()
	nodeID := names.NodeID(configuration.NodeKey.Public().(ed25519.PublicKey))
	p, err := openPlugins(&base{storage: held, sealed: configuration, log: log}, nodeID, time.Now(), log)
	if err != nil {
		return err
	}
	return p.launcher.StopRecorded(ctx)
}
