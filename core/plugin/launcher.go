package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/cgroup"
	"github.com/reeveproject/reeve/core/plugin/output"
	"github.com/reeveproject/reeve/core/plugin/store"
	"github.com/reeveproject/reeve/core/plugin/users"
	"github.com/reeveproject/reeve/core/proc"
	"github.com/reeveproject/reeve/core/rmtree"
	"github.com/reeveproject/reeve/core/sandbox"
	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

const (
	// InstanceVariable is the environment variable that names the instance to which a process belongs. Descendants inherit it.
	InstanceVariable = "REEVE_INSTANCE"
	// WorkloadVariable is the environment variable by which libraries find the SPIFFE Workload API, as its standard says: it is on the host socket. It is a
	// place and no secret: the socket answers the instance only.
	WorkloadVariable = "SPIFFE_ENDPOINT_SOCKET"
	// describeName takes the place of a role's name while a plugin is asked for its manifest. No role can have it.
	describeName = "_describe"
)

// Config is what a Launcher needs. All of it is required but what says otherwise.
type Config struct {
	Log   hclog.Logger
	Store *store.Store
	Users *users.Users
	// RunDir is the node's run directory, at most 48 bytes long, on a tmpfs; DataDir is where its volume is mounted. They are given mode 0711 as root
	// and 0700 otherwise. The directories above them must exist, and as root be searchable by everybody.
	RunDir, DataDir string
	NodeID          string
	// CoreStart is when this core started.
	CoreStart time.Time
	// Sandbox is what this machine can enforce; nil: NewLauncher finds out.
	Sandbox *sandbox.Host
	// Groups are the node's control groups; nil: there are none.
	Groups *cgroup.Tree
	// Defaults are the bounds of a role that was granted no others. The zero value bounds nothing.
	Defaults sandbox.Defaults
	// Patience is how long plugins may take, where it is not what DefaultPatience says.
	Patience Patience
}

// Patience is how long a plugin may take for each of its parts of a launch, before it counts as one that hangs. All of it takes milliseconds, and seconds on a
// machine that boots or has too much to do.
type Patience struct {
	// Handshake is for the handshake line, and Connect for the connection with the socket that it names, which listens by then.
	Handshake, Connect time.Duration
	// Describe is for one look at the manifest, from the start of the process on: a plugin that is not built for it is found out by then.
	Describe time.Duration
	// Start is for the role's look at its configuration. Its work begins after it has answered.
	Start time.Duration
	// Word is for the first status after a role was asked for it, which every role has at hand. It is as long as a role may take to answer anything else
	// (roles.DefaultLivenessTimeout).
	Word time.Duration
	// Silence is for how long the status stream of a live process may be broken before the role counts as failed. It breaks when the role closes it, which no role
	// has reason to.
	Silence time.Duration
	// Discard is for the removal of what an instance left in its runtime directory. What takes longer is left to the next core: an instance is not to be waited
	// for because it made a million files.
	Discard time.Duration
}

// DefaultPatience is that of a node.
func DefaultPatience() Patience {
	return Patience{
		Handshake: 30 * time.Second, Connect: 15 * time.Second, Describe: 30 * time.Second, Start: 15 * time.Second, Word: 20 * time.Second, Silence: 5 * time.Second,
		Discard: 10 * time.Second,
	}
}

// orDefault has what is not set be as it is by default.
func (p Patience) orDefault() Patience {
	d := DefaultPatience()
	return Patience{
		Handshake: cmp.Or(p.Handshake, d.Handshake), Connect: cmp.Or(p.Connect, d.Connect), Describe: cmp.Or(p.Describe, d.Describe),
		Start: cmp.Or(p.Start, d.Start), Word: cmp.Or(p.Word, d.Word), Silence: cmp.Or(p.Silence, d.Silence),
		Discard: cmp.Or(p.Discard, d.Discard),
	}
}

// Launcher makes instances. It may be used by several goroutines at once.
type Launcher struct {
	log             hclog.Logger
	store           *store.Store
	users           *users.Users
	runDir, dataDir string
	nodeID, bootID  string
	coreStart       time.Time
	counters        *users.Counters
	outputs         *output.Keeper
	describing      sync.Mutex
	sandbox         *sandbox.Host
	groups          *cgroup.Tree
	defaults        sandbox.Defaults
	patience        Patience
}

// Spec is one role to run.
type Spec struct {
	Role string
	// Plugin is the catalog record of the plugin that offers the role.
	Plugin *clusterv1.PluginRecord
	// Configuration is a JSON document; empty: none.
	Configuration string
	// Generation is that of the configuration.
	Generation uint64
	// Restarts is how often the role was started again before. It is kept with the instance, for the core that adopts it.
	Restarts uint32
	// Debug is the process that is to be the instance, in place of one that is launched; nil: one is launched.
	Debug *Debugged
}

// BootID tells this boot of the machine from another.
func (l *Launcher) BootID() string { return l.bootID }

// NewLauncher prepares the directories of the node's instances. It starts nothing, and stops nothing that an earlier core left: that is for
// StopRecorded.
func NewLauncher(c Config) (*Launcher, error) {
	switch {
	case c.Log == nil || c.Store == nil || c.Users == nil:
		return nil, errors.New("plugin: a launcher needs a log, a store and users")
	case c.NodeID == "" || strings.ContainsAny(c.NodeID, "/\x00\n"):
		return nil, fmt.Errorf("plugin: %q is no node ID", c.NodeID)
	case !filepath.IsAbs(c.RunDir) || !filepath.IsAbs(c.DataDir):
		return nil, errors.New("plugin: the run and data directories must be absolute")
	}
	l := &Launcher{
		log: c.Log, store: c.Store, users: c.Users,
		runDir: filepath.Clean(c.RunDir), dataDir: filepath.Clean(c.DataDir), nodeID: c.NodeID, coreStart: c.CoreStart,
		sandbox: c.Sandbox, groups: c.Groups, defaults: c.Defaults, patience: c.Patience.orDefault(),
	}
	l.outputs = &output.Keeper{Dir: l.instancesDir(), Logs: filepath.Join(l.dataDir, "logs")}
	if err := l.makeDirectories(append(l.runDirectories(), l.dataDirectories()...)); err != nil {
		return nil, err
	}
	var err error
	if l.bootID, err = proc.BootID(); err != nil {
		return nil, fmt.Errorf("plugin: boot ID: %w", err)
	}
	if l.counters, err = users.OpenCounters(filepath.Join(l.dataDir, "counters.json"), filepath.Join(l.runDir, "counters.json")); err != nil {
		return nil, fmt.Errorf("plugin: %w", err)
	}
	if l.sandbox == nil {
		if l.sandbox, err = sandbox.Probe(l.log, l.groups); err != nil {
			return nil, fmt.Errorf("plugin: %w", err)
		}
	}
	return l, nil
}

// directory is one of those in which the instances have theirs.
type directory struct {
	path    string
	passage bool // roles pass through it to reach what is theirs
}

// runDirectories are those that may be made anew whenever one is missing. What is on the volume is not: where it is missing, the volume is, and what a role wrote there would lie open.
func (l *Launcher) runDirectories() []directory {
	return []directory{{l.runDir, true}, {l.pluginDir(), true}, {l.instancesDir(), false}, {l.hostDir(), true}, {l.accessDir(), true}}
}

// MakeRunDirectories makes the directories of instances below run/ where somebody removed them, and returns their paths.
func (l *Launcher) MakeRunDirectories() ([]string, error) {
	var paths []string
	for _, d := range l.runDirectories() {
		paths = append(paths, d.path)
	}
	return paths, l.makeDirectories(l.runDirectories())
}

func (l *Launcher) dataDirectories() []directory {
	return []directory{{l.dataDir, true}, {filepath.Join(l.dataDir, "roles"), true}, {filepath.Join(l.dataDir, "logs"), false}}
}

// makeDirectories makes directories where they are not there.
func (l *Launcher) makeDirectories(directories []directory) error {
	for _, d := range directories {
		mode := os.FileMode(0o700)
		if d.passage && !l.users.Shared() {
			mode = 0o711 // under users of their own, roles pass through, but cannot list them
		}
		if err := makeDirectory(d.path, mode); err != nil {
			return fmt.Errorf("plugin: directories of instances: %w", err)
		}
	}
	return nil
}

func (l *Launcher) pluginDir() string                { return filepath.Join(l.runDir, "plugin") }
func (l *Launcher) instancesDir() string             { return filepath.Join(l.runDir, "instances") }
func (l *Launcher) hostDir() string                  { return filepath.Join(l.runDir, "host") }
func (l *Launcher) accessDir() string                { return filepath.Join(l.runDir, "access") }
func (l *Launcher) runtimeDir(name string) string    { return filepath.Join(l.pluginDir(), name) }
func (l *Launcher) roleDir(role string) string       { return filepath.Join(l.dataDir, "roles", role) }
func (l *Launcher) instanceID(role, n string) string { return l.nodeID + "/" + role + "/" + n }

// Prepare makes what an instance needs before it runs: its number, its user, its directories and its record. Nothing runs yet. Launch or
// Discard must follow.
//
// A *store.MissingError says that the executable is not here; an *UnknownRoleError that the plugin does not offer the role; a *GrantError that the role
// was granted something that this core does not know. All stay until the catalog or the store changes.
func (l *Launcher) Prepare(ctx context.Context, spec Spec) (*Remit, error) {
	if store.ManifestOf(spec.Plugin, spec.Role) == nil {
		return nil, &UnknownRoleError{Role: spec.Role, Plugin: spec.Plugin.GetName()}
	}
	digest, err := store.Digest(spec.Plugin)
	if err != nil {
		return nil, err
	}
	remit, err := l.remit(spec)
	if err != nil {
		return nil, err
	}
	if spec.Debug == nil {
		executable, err := l.executable(spec.Plugin.GetName(), digest)
		if err != nil {
			return nil, err
		}
		if err := executable.Close(); err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// Somebody may have removed one since: no role could start without it, and none could help it.
	if err := l.makeDirectories(l.runDirectories()); err != nil {
		return nil, err
	}
	if remit.Name, remit.InstanceID, err = l.number(spec.Role); err != nil {
		return nil, fmt.Errorf("plugin: role %s: %w", spec.Role, err)
	}
	remit.digest = digest
	if err := l.prepareDirectories(remit, digest); err != nil {
		return nil, errors.Join(fmt.Errorf("plugin: role %s: %w", spec.Role, err), l.Discard(remit))
	}
	return remit, nil
}

// Discard removes what Prepare made for an instance that is not to be launched. It takes no longer than Patience.Discard.
func (l *Launcher) Discard(remit *Remit) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), l.patience.Discard, fmt.Errorf("not done within %s", l.patience.Discard))
	defer cancel()
	// The record goes last: while it is there the next core looks after the rest.
	err := rmtree.Remove(ctx, l.runtimeDir(remit.Name))
	if err == nil {
		err = l.removeRecord(remit.Name)
	}
	if err != nil {
		return fmt.Errorf("plugin: clean up after instance %s: %w", remit.Name, err)
	}
	return nil
}

func (l *Launcher) executable(plugin, digest string) (*store.Executable, error) {
	executable, err := l.store.Open(digest)
	var missing *store.MissingError
	if errors.As(err, &missing) {
		missing.Plugin = plugin
	}
	return executable, err
}

func (l *Launcher) number(role string) (name, id string, err error) {
	n, err := l.counters.Next(role)
	if err != nil {
		return "", "", err
	}
	number := strconv.FormatUint(n, 10)
	return role + "." + number, l.instanceID(role, number), nil
}

func (l *Launcher) prepareDirectories(remit *Remit, digest string) error {
	runtime := l.runtimeDir(remit.Name)
	// go-plugin's server makes a socket "plugin" and up to ten digits.
	if n := len(runtime) + len("/plugin") + 10; n > limits.SocketPath {
		return fmt.Errorf("the path of its socket in %s would have %d bytes, and the kernel allows %d: choose a shorter run directory", runtime, n, limits.SocketPath)
	}
	err := l.writeRecord(remit.Name, record{
		InstanceID: remit.InstanceID, Role: remit.Role, UID: remit.UID, SharedUID: remit.SharedUID, Digest: digest,
	})
	if err != nil {
		return err
	}
	if remit.Role != describeName {
		if err := ownDirectory(l.roleDir(remit.Role), remit.UID, remit.GID); err != nil {
			return err
		}
	}
	// Left by an instance of the same number, which can only be when the counters were lost.
	if err := rmtree.Remove(context.Background(), runtime); err != nil {
		return err
	}
	return ownDirectory(runtime, remit.UID, remit.GID)
}
