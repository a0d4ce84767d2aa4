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

// The bounds of a role that is not granted others, where the parameters set none.
const (
	defaultMemory    = 1 << 30
	defaultProcesses = 512
	defaultOpenFiles = 4096
	defaultCPUWeight = 100
)

// bounds of a role that is not granted others.
func bounds(set *nodev1.SandboxDefaults) sandbox.Defaults {
	or := func(value *int64, standard int64) int64 {
		if value == nil {
			return standard
		}
		return *value
	}
	return sandbox.Defaults{
		MemoryBytes: or(set.MemoryBytes, defaultMemory), Processes: or(set.Processes, defaultProcesses),
		OpenFiles: or(set.OpenFiles, defaultOpenFiles), CPUWeight: or(set.CpuWeight, defaultCPUWeight),
	}
}

// Bounds are those of a role that is not granted others, on a node whose parameters set none.
func Bounds() sandbox.Defaults { return bounds(&nodev1.SandboxDefaults{}) }

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
	if set == nil {
		set = &nodev1.SandboxDefaults{}
	}
	groups, err := cgroup.Open(groupOf(nodeID, volume))
	if err != nil {
		log.Error("control groups cannot be used", "error", err)
		groups = nil
	}
	host, err := sandbox.Probe(log.Named("sandbox"), groups)
	if err != nil {
		return confinement{}, err
	}
	return confinement{host: host, groups: groups, defaults: bounds(set)}, nil
}

// missing is what cannot be enforced of the sandbox of a role that was granted nothing.
func (p *plugins) missing() []*clusterv1.Missing {
	return p.confinement.host.Missing(sandbox.Policy{OwnUser: !p.users.Shared(), Defaults: p.confinement.defaults})
}

// missingOf is what cannot be enforced of the sandbox of a role.
func (p *plugins) missingOf(spec plugin.Spec) []*clusterv1.Missing { return p.launcher.Missing(spec) }
