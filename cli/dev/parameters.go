package dev

import (
	"crypto/ed25519"
	"path/filepath"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/setup"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// Plan is what a dev directory is made with.
type Plan struct {
	// Plugins is the directory with the executables of the built-in plugins.
	Plugins string
	// HostsFile is the file that the role hostsfile manages; empty: D/hosts.
	HostsFile string
	// Volume is the kind of the volume, Plain or Fscrypt; empty: Plain for a directory that is made, and whatever one has that is there.
	Volume string
	// Namespaces gives every node a network namespace with an address of its own.
	Namespaces bool
	// Again gives up a dev directory whose disk is not mounted.
	Again bool
}

// parameters makes those of the first node of a directory.
func (p Plan) parameters(d *Directory, run string, owner ed25519.PublicKey) (*nodev1.Parameters, error) {
	state := d.State
	hosts := filepath.Join(state, hostsName)
	if p.HostsFile != "" {
		var err error
		if hosts, err = filepath.Abs(p.HostsFile); err != nil {
			return nil, err
		}
	}
	node := setup.Node{
		System: filepath.Join(state, "system"), Data: filepath.Join(state, "data"), Run: run,
		Plugins: p.Plugins, Owner: owner, HostsFile: hosts, LogFile: filepath.Join(state, logName),
		DebugRoles: true,
	}
	d.listen(&node)
	if p.Volume == Fscrypt {
		if err := encrypt(&node, filepath.Join(state, RecoveryKey)); err != nil {
			return nil, err
		}
	}
	return node.Parameters()
}

// fits says whether parameters that are there already are those of the plan, as far as it says something: they are never changed, and a choice
// that has no effect must not look as if it had.
func (p Plan) fits(parameters *nodev1.Parameters) error {
	if has := volumeOf(parameters); p.Volume != "" && p.Volume != has {
		return fault.New(fault.Refused, "the cluster was made with a volume of kind "+has+", which cannot become one of kind "+p.Volume,
			"Leave --volume out, or make another cluster with --dir.")
	}
	if p.HostsFile == "" {
		return nil
	}
	asked, err := filepath.Abs(p.HostsFile)
	if err != nil {
		return err
	}
	for _, plugin := range parameters.GetPlugins() {
		for _, role := range plugin.GetGrants() {
			for _, grant := range role.GetGrants() {
				if role.GetRole() == setup.Hostsfile && grant.GetParameters()["path"] == asked {
					return nil
				}
			}
		}
	}
	return fault.New(fault.Refused, "the cluster was made with another hosts file than "+asked,
		"Leave --hosts-file out, or make another cluster with --dir.")
}

const parametersHead = `# The parameters of this node's reeved. ` + "`reeve dev up`" + ` wrote them once and only reads them from then on.
# The message reeve.node.v1.Parameters says what may be in here.
`

// writeParameters reports whether it made the file: one that is there stays as it is.
func writeParameters(file string, parameters *nodev1.Parameters) (made bool, err error) {
	document, err := setup.Encode(parametersHead, parameters)
	if err != nil {
		return false, err
	}
	return setup.CreateOnly(file, document, 0o644)
}
