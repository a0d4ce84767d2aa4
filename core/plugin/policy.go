package plugin

import (
	"errors"
	"os"
	"slices"

	"github.com/reeveproject/reeve/core/plugin/store"
	"github.com/reeveproject/reeve/core/plugin/users"
	"github.com/reeveproject/reeve/core/sandbox"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	grants "github.com/reeveproject/reeve/proto/remit"
)

// consensusCapability is what the role provides that makes the sockets of the store.
const consensusCapability = "reeve.consensus.v1"

// describeDefaults bound a plugin that is asked for its manifest: no more than that takes, and the processes are its threads.
var describeDefaults = sandbox.Defaults{MemoryBytes: 512 << 20, Processes: 64, OpenFiles: 256, CPUWeight: 100}

// libraries are where a machine keeps its loader and the libraries that come with it, as far as they exist. The list is the core's: which loader an executable
// names is its author's word, and could be any file of the machine.
func libraries() []string {
	var exist []string
	for _, path := range []string{"/lib", "/lib64", "/usr/lib", "/usr/lib64"} {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			exist = append(exist, path)
		}
	}
	return exist
}

// remit is who an instance of a role would be, but for its number.
func (l *Launcher) remit(spec Spec) (*Remit, error) {
	granted := grants.ForRole(spec.Plugin.GetGrants(), spec.Role)
	if _, err := grants.Of(granted.GetGrants()); err != nil {
		return nil, grantError(spec, granted.GetGrants(), err)
	}
	r, err := RemitOf(store.ManifestOf(spec.Plugin, spec.Role), granted, l.users)
	if err == nil && spec.Debug != nil {
		r.debugged()
	}
	return r, err
}

// debugged changes the remit to that of a process which was started by hand: the core's user, no sandbox.
func (r *Remit) debugged() {
	r.Tier, r.Debugged = clusterv1.Tier_TIER_PRIVILEGED, true
	r.UID, r.GID, r.SharedUID = uint32(os.Geteuid()), uint32(os.Getegid()), true
	r.Powers.Memory, r.Powers.Processes, r.Powers.OpenFiles, r.Powers.CPUWeight = 0, 0, 0, 0 // no control group bounds it
}

// RemitOf is who an instance of a role would be, by its manifest and what it was granted. It has no name yet.
func RemitOf(manifest *rolev1.RoleManifest, granted *clusterv1.RoleGrants, users *users.Users) (*Remit, error) {
	r := &Remit{Role: granted.GetRole(), Manifest: manifest, Grants: granted, SharedUID: users.Shared()}
	var err error
	if r.Powers, err = grants.Of(r.Grants.GetGrants()); err != nil {
		return nil, err
	}
	r.Tier = r.Powers.Tier()
	if r.Powers.Privileged {
		// Nothing keeps it from becoming root: it is root from the beginning, and its files are.
		r.UID, r.GID, r.SharedUID = uint32(os.Geteuid()), uint32(os.Getegid()), true
		return r, nil
	}
	r.UID, r.GID, err = users.Of(r.Role)
	return r, err
}

func grantError(spec Spec, granted []*rolev1.Grant, err error) *GrantError {
	wrong := &GrantError{Role: spec.Role, Plugin: spec.Plugin.GetName(), Err: err}
	var one *grants.Error
	problems := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		problems = joined.Unwrap()
	}
	for _, problem := range problems {
		if errors.As(problem, &one) && one.Index < len(granted) {
			wrong.Grants = append(wrong.Grants, textFrom(granted[one.Index].GetName()))
		}
	}
	slices.Sort(wrong.Grants)
	wrong.Grants = slices.Compact(wrong.Grants)
	return wrong
}

// policy is the sandbox of an instance.
func (l *Launcher) policy(r *Remit) sandbox.Policy {
	private := []string{l.runtimeDir(r.Name)}
	if r.Role == describeName {
		p := PolicyOf(r, describeDefaults, private, nil)
		// It has been granted nothing, and has nobody to talk to but the core, which comes to it. If it is linked to libraries it can say only with them that it wants them.
		p.GivesUp, p.EndsWithCore = []string{grants.GiveUpNetwork}, true
		p.Remit.Execute = libraries()
		return p
	}
	private = append(private, l.roleDir(r.Role))
	passages := []string{l.hostDir(), l.accessDir()}
	if slices.Contains(r.Manifest.GetProvides(), consensusCapability) {
		// It makes the sockets, in directories that the core gives to it.
		passages = []string{l.hostDir()}
		private = append(private, l.accessDir())
	}
	return PolicyOf(r, l.defaults, private, passages)
}

// PolicyOf is the sandbox of whoever has a remit, with directories of its own, and those that it may pass through to reach sockets.
func PolicyOf(r *Remit, defaults sandbox.Defaults, private, passages []string) sandbox.Policy {
	powers := r.Powers
	if powers.Privileged = powers.Privileged || r.Debugged; powers.Privileged {
		// It may be what runs the containers of a whole machine: it has the bounds only that it was granted.
		defaults = sandbox.Defaults{}
	}
	return sandbox.Policy{
		Remit: powers, UID: r.UID, GID: r.GID, OwnUser: !r.SharedUID, Private: private, Passages: passages, Defaults: defaults,
		GivesUp: r.Manifest.GetGivesUp(), EndsWithCore: r.Manifest.GetEndsWithCore(),
	}
}

// SandboxOf says what a role would run in. What is wrong with its grants is left out: Prepare refuses the role.
func (l *Launcher) SandboxOf(spec Spec) *nodev1.Sandbox {
	return l.sandbox.Describe(l.policyOf(spec))
}

// Missing says what of a role's sandbox this node cannot enforce, sorted by name.
func (l *Launcher) Missing(spec Spec) []*clusterv1.Missing {
	return l.sandbox.Missing(l.policyOf(spec))
}

func (l *Launcher) policyOf(spec Spec) sandbox.Policy {
	r, err := l.remit(spec)
	if err != nil {
		r = &Remit{Role: spec.Role, Manifest: store.ManifestOf(spec.Plugin, spec.Role), SharedUID: true, UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
	}
	r.Name = spec.Role
	return l.policy(r)
}

// Sandbox is what the instance runs in.
func (i *Instance) Sandbox() *nodev1.Sandbox { return i.session.sandbox() }

func (s *session) sandbox() *nodev1.Sandbox {
	described := s.launcher.sandbox.Describe(s.launcher.policy(s.remit))
	if s.group != nil {
		described.ControlGroups = s.group.Paths()
	}
	return described
}
