package node

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/cgroup"
	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/sandbox"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// confinement is what this machine and this user can enforce of the sandboxes of roles.
type confinement struct {
	host     *sandbox.Host
	groups   *cgroup.Tree
	defaults sandbox.Defaults
}

// groupOf names the node's control groups. A volume that was copied and is run twice has one node ID, and the cores must not end each other's roles.
func groupOf(nodeID, volume string) string {
	sum := sha256.Sum256([]byte(volume))
	return nodeID + "-" + hex.EncodeToString(sum[:4])
}

// openConfinement finds it out. Where no control groups can be had the node goes on without, and says so in what is missing.
func openConfinement(nodeID, volume string, set *nodev1.SandboxDefaults, log hclog.Logger) (confinement, error) {
	groups, err := cgroup.Open(groupOf(nodeID, volume))
	if err != nil {
		log.Error("control groups cannot be used", "error", err)
		groups = nil
	}
	host, err := sandbox.Probe(log.Named("sandbox"), groups)
	if err != nil {
		return confinement{}, err
	}
	return confinement{host: host, groups: groups, defaults: sandbox.DefaultsOf(set)}, nil
}

// missing is what cannot be enforced of the sandbox of a role that was granted nothing.
func (p *plugins) missing() []*clusterv1.Missing {
	return p.confinement.host.Missing(sandbox.Policy{OwnUser: !p.users.Shared(), Defaults: p.confinement.defaults})
}

// missingOf is what cannot be enforced of the sandbox of a role.
func (p *plugins) missingOf(spec plugin.Spec) []*clusterv1.Missing { return p.launcher.Missing(spec) }
