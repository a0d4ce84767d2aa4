package node

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/catalog"
	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/seal"
	"github.com/reeveproject/reeve/core/storage"
	names "github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// UIDRanges is the file in which the nodes of a host reserve ranges of user IDs, so that no two of them share one. Only used as root.
const UIDRanges = "/var/lib/reeve/uid-ranges"

// base is a node's directories and what it knows of itself.
type base struct {
	storage *storage.Storage
	sealed  *seal.Configuration
	// sandbox is how the parameters have roles confined; nil: by the defaults.
	sandbox *nodev1.SandboxDefaults
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

func openPlugins(ctx context.Context, b *base, nodeID string, start time.Time, log hclog.Logger) (*plugins, error) {
	store, err := plugin.OpenStore(b.storage.Plugins())
	if err != nil {
		return nil, err
	}
	if earlier := b.storage.EarlierPlugins(); earlier != b.storage.Plugins() {
		if err := store.TakeOver(ctx, earlier); err != nil {
			log.Error("executables that an earlier core kept elsewhere are not all taken over; it is tried again at the next start", "from", earlier, "error", err)
		}
	}
	users, err := plugin.ReserveUsers(UIDRanges, b.storage.Users(), b.storage.Data, b.sandbox.GetUsers())
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

// close closes what is open on the volume, and takes away the node's control groups unless roles run on in them; nil has nothing.
func (p *plugins) close() error {
	if p == nil {
		return nil
	}
	return errors.Join(p.store.Close(), p.confinement.groups.Close())
}

func (p *plugins) isolation() clusterv1.Isolation {
	if p.users.Shared() {
		return clusterv1.Isolation_ISOLATION_SHARED_UID
	}
	return clusterv1.Isolation_ISOLATION_OWN_UID
}

func (p *plugins) importer() catalog.Importer {
	return catalog.Importer{Import: p.store.Import, ImportPlugin: p.importPlugin}
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
