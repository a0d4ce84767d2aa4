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

	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/seal"
	"github.com/reeveproject/reeve/core/storage"
	names "github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// uidRanges is the file in which the nodes of a host reserve ranges of user IDs, so that no two of them share one. Only used as root.
const uidRanges = "/var/lib/reeve/uid-ranges"

// base is a node's storage and what it holds of the node.
type base struct {
	storage *storage.Storage
	seal    *seal.Store
	sealed  *seal.Configuration
	// sandbox is how the parameters have roles confined; nil: by the defaults.
	sandbox *nodev1.SandboxDefaults
	log     hclog.Logger
}

// open takes the node's directories and reads, or makes, what the node must know to start.
func open(parameters *nodev1.Parameters, log hclog.Logger) (*base, error) {
	held, err := storage.Open(storage.NewLayout(parameters.GetDirectories()))
	if err != nil {
		return nil, err
	}
	b := &base{storage: held, seal: seal.NewStore(held.Configuration(), seal.File{}), sandbox: parameters.GetSandbox(), log: log}
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
	// confinement is what roles are confined with.
	confinement confinement
	// imported is set with every executable that was imported.
	imported event.Value[string]
}

func openPlugins(b *base, nodeID string, start time.Time, log hclog.Logger) (*plugins, error) {
	store, err := plugin.OpenStore(b.storage.Plugins())
	if err != nil {
		return nil, err
	}
	users, err := plugin.ReserveUsers(uidRanges, b.storage.Users(), b.storage.Data, b.sandbox.GetUsers())
	if err != nil {
		return nil, err
	}
	confined, err := openConfinement(nodeID, b.storage.Data, b.sandbox, log)
	if err != nil {
		return nil, err
	}
	launcher, err := plugin.NewLauncher(plugin.Config{
		Log: log.Named("plugin"), Store: store, Users: users, RunDir: b.storage.Run, DataDir: b.storage.Data, NodeID: nodeID, CoreStart: start,
		Sandbox: confined.host, Groups: confined.groups, Defaults: confined.defaults,
	})
	if err != nil {
		return nil, err
	}
	return &plugins{store: store, users: users, launcher: launcher, confinement: confined}, nil
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
	p.imported.Set(digest)
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
	p, err := openPlugins(&base{storage: held, sealed: configuration, sandbox: parameters.GetSandbox(), log: log}, nodeID, time.Now(), log)
	if err != nil {
		return err
	}
	return p.launcher.StopRecorded(ctx)
}
