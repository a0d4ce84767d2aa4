package roles_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/plugin/store"
	"github.com/reeveproject/reeve/core/roles"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/event"
	"github.com/reeveproject/reeve/sdk/leaktest"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(coreVariable); dir != "" {
		os.Exit(core(dir))
	}
	leaktest.VerifyTestMain(m, goleak.Cleanup(cleanup))
}

// The instance states, under short names.
const (
	blocked  = hostv1.InstanceState_INSTANCE_STATE_BLOCKED
	starting = hostv1.InstanceState_INSTANCE_STATE_STARTING
	ready    = hostv1.InstanceState_INSTANCE_STATE_READY
	degraded = hostv1.InstanceState_INSTANCE_STATE_DEGRADED
	stopping = hostv1.InstanceState_INSTANCE_STATE_STOPPING
	backoff  = hostv1.InstanceState_INSTANCE_STATE_BACKOFF
	failed   = hostv1.InstanceState_INSTANCE_STATE_FAILED
)

// fakes launches instances that are no processes. It keeps account of everything that was made.
type fakes struct {
	mu   sync.Mutex
	next int
	// launches is how many launches succeeded.
	launches int
	running  map[string]*fake // by role
	pending  int              // prepared and neither launched nor discarded
	sockets  int              // opened and not closed
	begun    []string         // roles, in the order in which they were launched
	ended    []string         // roles, in the order in which they were stopped

	// launchTime is how long a launch takes, readyTime how long an instance takes to be Ready (negative: for ever), and stopTime how long to stop.
	launchTime, readyTime, stopTime time.Duration
	// refuse, if it returns an error, is what a launch fails with.
	refuse func(role string, configuration string) error
	// refuseVersion, if it returns an error, is what the launch of a version of a plugin fails with.
	refuseVersion func(version string) error
	reasons       map[string]rolev1.StopReason // why a role was last stopped
	graces        map[string]time.Duration     // and how long it had for that
	hurries       map[string]time.Duration     // and in what time it was to be over; 0: no bound
	// farewell is with what error instances stop; "": with none.
	farewell string
	// prepareError is what Prepare fails with, openError what Open does.
	prepareError, openError error
}

func newFakes() *fakes {
	return &fakes{
		running: make(map[string]*fake), reasons: make(map[string]rolev1.StopReason), graces: make(map[string]time.Duration),
		hurries: make(map[string]time.Duration),
	}
}

func (f *fakes) Prepare(ctx context.Context, spec plugin.Spec) (*plugin.Remit, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.prepareError != nil {
		return nil, f.prepareError
	}
	f.next++
	f.pending++
	remit := &plugin.Remit{
		InstanceID: fmt.Sprintf("node/%s/%d", spec.Role, f.next), Role: spec.Role, Grants: &clusterv1.RoleGrants{Role: spec.Role}, Debugged: spec.Debug != nil,
	}
	for _, m := range spec.Plugin.GetManifest().GetRoles() {
		if m.GetName() == spec.Role {
			remit.Manifest = m
		}
	}
	for _, g := range spec.Plugin.GetGrants() {
		if g.GetRole() == spec.Role {
			remit.Grants = g
		}
	}
	return remit, nil
}

func (f *fakes) Discard(*plugin.Remit) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pending--
	return nil
}

func (f *fakes) Open(*plugin.Remit) (string, func(), error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.openError != nil {
		return "", nil, f.openError
	}
	f.sockets++
	return "/host.sock", sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.sockets--
	}), nil
}

func (f *fakes) Launch(ctx context.Context, remit *plugin.Remit, spec plugin.Spec, _ string) (roles.Running, error) {
	select {
	case <-time.After(f.launchTime):
	case <-ctx.Done():
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pending--
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if f.refuse != nil {
		if err := f.refuse(spec.Role, spec.Configuration); err != nil {
			return nil, err
		}
	}
	if f.refuseVersion != nil {
		if err := f.refuseVersion(spec.Plugin.GetVersion()); err != nil {
			return nil, err
		}
	}
	if f.running[remit.Role] != nil {
		panic("two instances of role " + remit.Role)
	}
	i := &fake{owner: f, remit: remit, spec: spec, version: spec.Plugin.GetVersion(), pid: f.next, status: event.New(&rolev1.WatchResponse{State: rolev1.RoleState_ROLE_STATE_STARTING}), done: make(chan struct{})}
	f.launches++
	f.running[remit.Role] = i
	f.begun = append(f.begun, remit.Role)
	if f.readyTime >= 0 {
		time.AfterFunc(f.readyTime, func() { i.say(rolev1.RoleState_ROLE_STATE_READY, "") })
	}
	return i, nil
}

// get returns the running instance of a role, or nil.
func (f *fakes) get(role string) *fake {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.running[role]
}

func (f *fakes) order() (begun, ended []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.begun...), append([]string(nil), f.ended...)
}

// leaks says what was made and not ended.
func (f *fakes) leaks() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.running) > 0 || f.pending > 0 || f.sockets > 0 {
		return fmt.Errorf("%d instances, %d preparations and %d sockets are left", len(f.running), f.pending, f.sockets)
	}
	return nil
}

// fake is an instance.
type fake struct {
	owner *fakes
	remit *plugin.Remit
	pid   int
	// version is that of the plugin.
	version string
	status  *event.Value[*rolev1.WatchResponse]
	exit    plugin.Exit
	done    chan struct{}

	asked  atomic.Int32 // how often it was asked whether it is well
	asking atomic.Int32 // how often it is being asked at present
	// health is what it answers, if not that it is well.
	health atomic.Pointer[error]

	spec plugin.Spec
	left atomic.Bool
	kept atomic.Pointer[keptState]
}

// errLate is the health of an instance that is well, and takes long to say so.
type errLate time.Duration

func (e errLate) Error() string { return "late" }

// errSilent is the health of an instance that does not answer.
const errSilent = errLate(1000 * time.Hour)

func (i *fake) CheckHealth(ctx context.Context) error {
	i.asked.Add(1)
	if i.asking.Add(1) > 1 {
		panic("an instance was asked twice at once")
	}
	defer i.asking.Add(-1)
	health := i.health.Load()
	if health == nil {
		return nil
	}
	if late, ok := (*health).(errLate); ok {
		select {
		case <-time.After(time.Duration(late)):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return *health
}

// feel sets how it is; nil: well.
func (i *fake) feel(health error) {
	if health == nil {
		i.health.Store(nil)
		return
	}
	i.health.Store(&health)
}

func (i *fake) Remit() *plugin.Remit { return i.remit }
func (i *fake) Spec() plugin.Spec    { return i.spec }
func (i *fake) Launched() time.Time  { return time.Unix(1_800_000_000, 0) }
func (i *fake) Leave()               { i.left.Store(true) }
func (i *fake) KeepState(state hostv1.InstanceState, since time.Time) {
	i.kept.Store(&keptState{state, since})
}

func (i *fake) KeptState() (hostv1.InstanceState, time.Time) {
	if kept := i.kept.Load(); kept != nil {
		return kept.state, kept.since
	}
	return 0, time.Time{}
}

// keptState is what a core kept of an instance.
type keptState struct {
	state hostv1.InstanceState
	since time.Time
}

func (i *fake) Process() plugin.Process                     { return plugin.Process{PID: i.pid, Start: 1} }
func (i *fake) Conn() *grpc.ClientConn                      { return nil }
func (i *fake) Status() *event.Value[*rolev1.WatchResponse] { return i.status }
func (i *fake) Done() <-chan struct{}                       { return i.done }
func (i *fake) Exit() plugin.Exit                           { return i.exit }

func (i *fake) say(state rolev1.RoleState, reason string) {
	i.status.Set(&rolev1.WatchResponse{State: state, Reason: reason})
}

func (i *fake) Stop(ctx context.Context, _ time.Duration) error {
	time.Sleep(i.owner.stopTime)
	if farewell := i.owner.farewell; farewell != "" {
		i.say(rolev1.RoleState_ROLE_STATE_STOPPED, farewell)
	}
	i.end(plugin.Exit{Requested: true})
	return nil
}

func (i *fake) StopWith(ctx context.Context, grace time.Duration, reason rolev1.StopReason) error {
	i.owner.mu.Lock()
	i.owner.reasons[i.remit.Role], i.owner.graces[i.remit.Role], i.owner.hurries[i.remit.Role] = reason, grace, 0
	if over, ok := ctx.Deadline(); ok {
		i.owner.hurries[i.remit.Role] = time.Until(over)
	}
	i.owner.mu.Unlock()
	return i.Stop(ctx, grace)
}

// crash ends the instance as SIGKILL would.
func (i *fake) crash() { i.end(plugin.Exit{Code: -1, Signal: syscall.SIGKILL}) }

func (i *fake) end(exit plugin.Exit) {
	i.owner.mu.Lock()
	defer i.owner.mu.Unlock()
	if i.owner.running[i.remit.Role] != i {
		return // it has ended before
	}
	delete(i.owner.running, i.remit.Role)
	i.owner.ended = append(i.owner.ended, i.remit.Role)
	i.exit = exit
	close(i.done)
}

// fixture is a reconciler over fakes. It runs in a synctest bubble.
type fixture struct {
	*fakes
	*roles.Reconciler
	desired *event.Value[roles.Desired]
	events  recorder
	cancel  context.CancelFunc
	result  chan error
}

// recorder keeps what was recorded.
type recorder struct {
	mu     sync.Mutex
	events []*nodev1.Event
}

func (r *recorder) Record(event *nodev1.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, event)
}

// take returns what was recorded since it was called last, by type.
func (r *recorder) take() (types []string, events map[string]*nodev1.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	events = make(map[string]*nodev1.Event)
	for _, event := range r.events {
		types = append(types, event.GetType())
		events[event.GetType()] = event
	}
	r.events = nil
	return types, events
}

// budget sets a crash budget.
func budget(failures int, window time.Duration) func(*roles.Config) {
	return func(c *roles.Config) {
		c.Budget = func(string) roles.Budget { return roles.Budget{Failures: failures, Window: window} }
	}
}

// unheard drops events.
type unheard struct{}

func (unheard) Record(*nodev1.Event) {}

// quiet completes a configuration: the node lacks nothing, and nobody is told of anything.
func quiet(c roles.Config) roles.Config {
	if c.Events == nil {
		c.Events = unheard{}
	}
	c.Shortage, c.Stored, c.Launched = func() string { return "" }, func(string) bool { return true }, func(string, time.Duration) {}
	return c
}

func run(t testing.TB, f *fakes, settings ...func(*roles.Config)) *fixture {
	x := &fixture{fakes: f, desired: new(event.Value[roles.Desired]), result: make(chan error, 1)}
	config := quiet(roles.Config{
		Log: hclog.NewNullLogger(), Launcher: f, Hosts: f, Desired: x.desired, BackoffJitter: -1, Events: &x.events,
	})
	for _, set := range settings {
		set(&config)
	}
	x.Reconciler = roles.New(config)
	ctx, cancel := context.WithCancel(context.Background())
	x.cancel = cancel
	go func() { x.result <- x.Run(ctx) }()
	return x
}

// end shuts the reconciler down and says what it left.
func (x *fixture) end() error {
	x.cancel()
	err := errors.Join(<-x.result, x.leaks())
	if now, _ := x.Instances().Get(); len(now) > 0 {
		err = errors.Join(err, fmt.Errorf("roles are still shown: %v", now))
	}
	return err
}

// desire sets what should run.
func (x *fixture) desire(desired ...roles.DesiredRole) {
	x.desired.Set(roles.Desired{Roles: desired})
}

// of returns what is shown of a role, or nil.
func (x *fixture) of(role string) *clusterv1.InstanceStatus {
	now, _ := x.Instances().Get()
	for _, instance := range now {
		if instance.Status.GetRole() == role {
			return instance.Status
		}
	}
	return nil
}

// role is a desired role whose plugin has the same name.
func role(name string, requires ...string) roles.DesiredRole {
	return roles.DesiredRole{
		Assignment: &clusterv1.RoleAssignment{Role: name, Generation: 1},
		Plugin: &clusterv1.PluginRecord{
			Name: name, Version: "1.0.0", Digests: map[string]string{store.Platform: "sha256:" + name},
			Manifest: &rolev1.Manifest{Name: name, Roles: []*rolev1.RoleManifest{{Name: name, Requires: requires}}},
			Grants:   []*clusterv1.RoleGrants{{Role: name}},
		},
	}
}

// providing adds capabilities to a desired role.
func providing(d roles.DesiredRole, capabilities ...string) roles.DesiredRole {
	d.Plugin.Manifest.Roles[0].Provides = capabilities
	return d
}

// configured gives a desired role another configuration.
func configured(d roles.DesiredRole, configuration string, generation uint64) roles.DesiredRole {
	d.Assignment.Configuration, d.Assignment.Generation = configuration, generation
	return d
}

// held holds a desired role back.
func held(d roles.DesiredRole, why string) roles.DesiredRole {
	d.Hold = why
	return d
}
