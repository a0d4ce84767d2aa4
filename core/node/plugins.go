package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/catalog"
	"github.com/reeveproject/reeve/core/cgroup"
	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/plugin/store"
	"github.com/reeveproject/reeve/core/plugin/users"
	"github.com/reeveproject/reeve/core/sandbox"
	"github.com/reeveproject/reeve/core/storage"
	names "github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// UIDRanges is the file in which the nodes of a host reserve ranges of user IDs, so that no two nodes share one. Only used as root.
const UIDRanges = "/var/lib/reeve/uid-ranges"

// plugins is what runs the plugins of a node.
type plugins struct {
	store    *store.Store
	users    *users.Users
	launcher *plugin.Launcher
	// host, groups and defaults are what this machine and this user can enforce of the sandboxes of roles. groups is nil without control groups.
	host     *sandbox.Host
	groups   *cgroup.Tree
	defaults sandbox.Defaults
	// imported is set with every executable that was imported.
	imported event.Value[string]
}

func openPlugins(held *storage.Storage, set *nodev1.SandboxDefaults, nodeID string, start time.Time, log hclog.Logger) (*plugins, error) {
	p := &plugins{defaults: sandbox.DefaultsOf(set)}
	var err error
	if p.store, err = store.Open(held.Plugins()); err != nil {
		return nil, err
	}
	if p.users, err = users.Reserve(UIDRanges, held.Users(), held.Data, set.GetUsers()); err != nil {
		return nil, err
	}
	if p.groups, err = cgroup.Open(groupOf(nodeID, held.Data)); err != nil {
		// The node goes on. Its status says what it cannot enforce.
		log.Error("cannot use control groups", "error", err)
		p.groups = nil
	}
	if p.host, err = sandbox.Probe(log.Named("sandbox"), p.groups); err != nil {
		return nil, err
	}
	p.launcher, err = plugin.NewLauncher(plugin.Config{
		Log: log.Named("plugin"), Store: p.store, Users: p.users, RunDir: held.Run, DataDir: held.Data, NodeID: nodeID, CoreStart: start,
		Sandbox: p.host, Groups: p.groups, Defaults: p.defaults,
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// groupOf names the node's control groups. Two copies of a volume have the same node ID, and their cores must not end each other's roles.
func groupOf(nodeID, volume string) string {
	sum := sha256.Sum256([]byte(volume))
	return nodeID + "-" + hex.EncodeToString(sum[:4])
}

// close closes what is open on the volume, and removes the node's control groups unless roles run on in them. p may be nil.
func (p *plugins) close() error {
	if p == nil {
		return nil
	}
	return errors.Join(p.store.Close(), p.groups.Close(), p.users.Close())
}

func (p *plugins) isolation() clusterv1.Isolation {
	if p.users.Shared() {
		return clusterv1.Isolation_ISOLATION_SHARED_UID
	}
	return clusterv1.Isolation_ISOLATION_OWN_UID
}

// missing returns what cannot be enforced of the sandbox of a role that was granted nothing.
func (p *plugins) missing() []*clusterv1.Missing {
	return p.host.Missing(sandbox.Policy{OwnUser: !p.users.Shared(), Defaults: p.defaults})
}

func (p *plugins) importer() catalog.Importer {
	return catalog.Importer{Import: p.store.Import, ImportPlugin: p.importPlugin}
}

// importPlugin stores an executable by its digest and asks it for its manifest.
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

// logPath returns where the log of a role is kept, and whether there is one.
func (n *node) logPath(role string) (string, bool) {
	if !names.ValidName(role) {
		return "", false
	}
	path := n.storage.Log(role)
	_, err := os.Stat(path)
	return path, err == nil
}
