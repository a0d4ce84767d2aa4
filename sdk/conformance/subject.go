package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/reeveproject/reeve/proto/limits"
	"github.com/reeveproject/reeve/proto/remit"
	"github.com/reeveproject/reeve/sdk/event"
	"github.com/reeveproject/reeve/sdk/role"
	"github.com/reeveproject/reeve/sdk/roletest"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// The core's limits. It ends a role that exceeds them.
const (
	handshakeTime = 30 * time.Second
	describeTime  = 30 * time.Second
	startTime     = 15 * time.Second
	// statusTime is the timeout of a role's first status and of other answers.
	statusTime = 20 * time.Second
	// graceTime is the core's default grace period, exitTime how much later the process may end.
	graceTime = limits.StopGrace
	exitTime  = 5 * time.Second
	// readyTime is how long a role that waits for nothing may take until it is Ready.
	readyTime = 30 * time.Second
)

// subject is the plugin under test.
type subject struct {
	config     Config
	executable string
	// digest is the executable's; empty if it cannot be read.
	digest string
	// work is the directory of the run. Its path is short, because socket paths are limited to 107 bytes.
	work    string
	bench   *bench
	spawner *spawner
	// manifest is nil until it is known.
	manifest *rolev1.Manifest
	// hosts are the suite's hosts, one per role.
	hosts map[string]*roletest.Host
	// store is nil until a role needs it. users are its ConsensusUsers by role.
	store Store
	users map[string]StoreUser
	// storeLives and coreLives are observations by role that several checks use.
	storeLives map[string]*storeLife
	coreLives  map[string]*coreLife
	// idleLives and drivenLives are the same. runs are a role's runs on the same data.
	idleLives   map[string]*idleLife
	drivenLives map[string]*drivenLife
	runs        map[string][]run
	figures     []Figure
	blocked     []Blocked
	// refusals are the answers to configurations, by role and document.
	refusals map[string]refused

	mu      sync.Mutex
	count   int
	open    []*process
	watches []*instance
}

func newSubject(config Config) (*subject, error) {
	executable, err := absolute(config.Executable)
	if err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp(place(), "rc")
	if err != nil {
		return nil, err
	}
	if os.Geteuid() == 0 { // roles with their own user pass through it
		if err := os.Chmod(work, 0o711); err != nil {
			return nil, errors.Join(err, os.RemoveAll(work))
		}
	}
	return &subject{
		config: config, executable: executable, digest: digest(executable), work: work, bench: &bench{}, spawner: newSpawner(), hosts: make(map[string]*roletest.Host), users: make(map[string]StoreUser),
		storeLives: make(map[string]*storeLife), coreLives: make(map[string]*coreLife), refusals: make(map[string]refused),
		figures: []Figure{}, blocked: []Blocked{}, idleLives: make(map[string]*idleLife), drivenLives: make(map[string]*drivenLife), runs: make(map[string][]run),
	}, nil
}

// place returns where to make a run's directory: on a disk, and not below /tmp, which a role has for itself in its sandbox unless something of the
// machine is shown there.
func place() string {
	const temporary = "/var/tmp"
	if info, err := os.Stat(temporary); err == nil && info.IsDir() && syscall.Access(temporary, 7) == nil {
		return temporary
	}
	return "/tmp"
}

func (s *subject) close() error {
	err := errors.Join(s.endAll(), s.bench.end())
	if s.store != nil {
		err = errors.Join(err, s.store.Close())
	}
	s.spawner.close()
	return errors.Join(err, os.RemoveAll(s.work))
}

// figure records a measurement of a role.
func (s *subject) figure(of *rolev1.RoleManifest, name string, value float64, unit string) {
	s.figures = append(s.figures, Figure{Role: limits.Clean(of.GetName()), Name: name, Value: value, Unit: unit})
}

// directory makes a directory of the run.
func (s *subject) directory() (string, error) {
	s.mu.Lock()
	s.count++
	path := filepath.Join(s.work, strconv.Itoa(s.count))
	s.mu.Unlock()
	return path, os.Mkdir(path, 0o700)
}

// cookie is the variable without which a plugin does not serve.
func cookie() string { return role.Handshake.MagicCookieKey + "=" + role.Handshake.MagicCookieValue }

// launch starts the executable. It adds the variables to those for the socket's directory and the process's mark.
func (s *subject) launch(variables ...string) (*process, error) {
	directory, err := s.directory()
	if err != nil {
		return nil, err
	}
	p, err := launchProcess(s.spawner, s.executable, directory, s.mark(directory), append(environment(directory), variables...))
	if err != nil {
		return nil, err
	}
	p.patience = s.config.patience
	s.mu.Lock()
	s.open = append(s.open, p)
	s.mu.Unlock()
	return p, nil
}

// mark returns a unique variable for a process with a runtime directory. It differs from those of other suites too.
func (s *subject) mark(directory string) string {
	return "REEVE_INSTANCE=" + nodeID + "/" + filepath.Base(s.work) + "/" + filepath.Base(directory)
}

// nodeID is the node ID of the suite's hosts.
const nodeID = "reeve-000102030405060708090a0b0c0d0e0f"

// connected starts the executable like a core and connects to it.
func (s *subject) connected(ctx context.Context, variables ...string) (*process, error) {
	p, err := s.launch(append([]string{cookie(), "PLUGIN_PROTOCOL_VERSIONS=" + strconv.Itoa(int(role.Handshake.ProtocolVersion))}, variables...)...)
	if err != nil {
		return nil, err
	}
	line, err := p.awaitLine(ctx)
	if err != nil {
		return nil, err
	}
	return p, p.connect(line)
}

func (p *process) service() rolev1.RoleServiceClient { return rolev1.NewRoleServiceClient(p.conn) }

// describe asks for the manifest.
func (p *process) describe(ctx context.Context) (*rolev1.Manifest, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(p.patience, describeTime))
	defer cancel()
	answer, err := p.service().Describe(ctx, &rolev1.DescribeRequest{})
	if err != nil {
		return nil, fmt.Errorf("it answers Describe with %w%s", err, p.lastWords())
	}
	return answer.GetManifest(), nil
}

// standIn makes a role's host, once, and grants what the role wants.
func (s *subject) standIn(of *rolev1.RoleManifest) *roletest.Host {
	if host := s.hosts[of.GetName()]; host != nil {
		return host
	}
	host := roletest.NewClusterIn(s.bench, s.work, 1).Host(0)
	s.hosts[of.GetName()] = host
	for _, grant := range of.GetGrants() {
		switch grant.GetName() {
		case "replace-file":
			if path := grant.GetParameters()["path"]; host.File(path) == nil {
				host.SetFile(path, []byte{})
			}
		case "set-hostname":
			host.GrantHostname("conformance")
		case "set-machine-id":
			host.GrantMachineID("")
		case "watch-operators":
			host.GrantOperators()
			host.Operators.Set(&hostv1.Operators{})
		}
	}
	return host
}

// request returns the StartRequest for a role.
func (s *subject) request(p *process, of *rolev1.RoleManifest, data, configuration string) *rolev1.StartRequest {
	host := s.standIn(of)
	s.mu.Lock()
	s.count++
	number := s.count
	s.mu.Unlock()
	return &rolev1.StartRequest{
		InstanceId: fmt.Sprintf("%s/%s/%d", host.NodeID(), of.GetName(), number), Role: of.GetName(), NodeId: host.NodeID(),
		Configuration: configuration, ConfigurationGeneration: 1, HostSocket: host.RoleSocket(s.bench, of.GetName()),
		DataDirectory: data, RuntimeDirectory: p.directory, CoreUid: uint32(os.Getuid()), Grants: of.GetGrants(),
		LaterStates: []rolev1.RoleState{rolev1.RoleState_ROLE_STATE_BLOCKED},
	}
}

// instance is a started role.
type instance struct {
	*process
	request *rolev1.StartRequest
	status  event.Value[*rolev1.WatchResponse]
	watch   chan struct{} // closed when the status stream has ended
	cancel  context.CancelFunc
	// grace is the role's grace period.
	grace time.Duration
	// found is called if the machine keeps the role Blocked.
	found func(role, reason string)
}

// prepare starts a process for a role before its Start. data is the role's directory.
func (s *subject) prepare(ctx context.Context, of *rolev1.RoleManifest, data, configuration string) (*process, *rolev1.StartRequest, error) {
	host := s.standIn(of)
	if err := s.openStore(ctx, host, of); err != nil {
		return nil, nil, err
	}
	p, err := s.connected(ctx, "SPIFFE_ENDPOINT_SOCKET=unix://"+host.RoleSocket(s.bench, of.GetName()))
	if err != nil {
		return nil, nil, err
	}
	return p, s.request(p, of, data, configuration), nil
}

// start starts a role and follows its status. data is its data directory; empty: a new one.
func (s *subject) start(ctx context.Context, of *rolev1.RoleManifest, data string) (*instance, error) {
	configuration, err := s.configuration(of)
	if err != nil {
		return nil, err
	}
	if data == "" {
		if data, err = s.directory(); err != nil {
			return nil, err
		}
	}
	p, request, err := s.prepare(ctx, of, data, configuration)
	if err != nil {
		return nil, err
	}
	if err := p.callStart(ctx, request); err != nil {
		return nil, fmt.Errorf("it answers Start with %w%s", err, p.lastWords())
	}
	return s.follow(p, request), nil
}

func (p *process) callStart(ctx context.Context, request *rolev1.StartRequest) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	_, err := p.service().Start(ctx, request)
	return err
}

// follow follows the status of a started role.
func (s *subject) follow(p *process, request *rolev1.StartRequest) *instance {
	return s.followBy(p, request, &rolev1.WatchRequest{})
}

// followBy follows the status with a given request.
func (s *subject) followBy(p *process, request *rolev1.StartRequest, ask *rolev1.WatchRequest) *instance {
	ctx, cancel := context.WithCancel(context.Background())
	i := &instance{process: p, request: request, watch: make(chan struct{}), cancel: cancel, grace: graceTime, found: s.foundBlocked}
	for _, of := range s.manifest.GetRoles() {
		if of.GetName() == request.GetRole() {
			i.grace = graceOf(of)
		}
	}
	go func() {
		defer close(i.watch)
		stream, err := p.service().Watch(ctx, ask)
		for err == nil {
			var now *rolev1.WatchResponse
			if now, err = stream.Recv(); err == nil {
				i.status.Set(now)
			}
		}
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches = append(s.watches, i)
	return i
}

// await waits for a status.
func (i *instance) await(ctx context.Context, most time.Duration, accept func(*rolev1.WatchResponse) bool) (*rolev1.WatchResponse, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := newTimer(most, i.waited)
	go func() {
		defer timer.Stop()
		for {
			select {
			case <-i.watch:
				// No status follows, but the last one is still there.
				if now, ok := i.status.Get(); !ok || !accept(now) {
					cancel()
				}
				return
			case <-timer.C:
				if timer.over() {
					cancel()
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return i.status.Wait(ctx, accept)
}

// graceOf returns a role's grace period.
func graceOf(of *rolev1.RoleManifest) time.Duration { return limits.StopGraceOf(of.GetStopGrace()) }

// settle waits until the role is Ready, Degraded or Blocked by this machine. A role that waits for something that the suite lacks is left alone for a
// moment instead.
func (i *instance) settle(ctx context.Context, of *rolev1.RoleManifest) error {
	most := readyTime
	if waitsFor(of) != "" {
		most = waitingTime
	}
	now, err := i.await(ctx, most, func(now *rolev1.WatchResponse) bool {
		return works(now) || blocked(now) || failed(now)
	})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case blocked(now) && now.GetReason() == "":
		return fmt.Errorf("it is Blocked, and does not say by what%s", i.lastWords())
	case blocked(now) && !mayLack(of):
		return fmt.Errorf("it is Blocked (%s), and its manifest wants nothing that a machine could lack%s", now.GetReason(), i.lastWords())
	case blocked(now):
		i.found(of.GetName(), now.GetReason())
		return nil
	case now.GetState() == rolev1.RoleState_ROLE_STATE_FAILED:
		return fmt.Errorf("it has failed (%s)%s", now.GetReason(), i.lastWords())
	case err == nil:
		return nil
	}
	select {
	case <-i.ended:
		return fmt.Errorf("its process has ended by itself (%s)%s", i.exit(), i.lastWords())
	default:
	}
	if waitsFor(of) != "" {
		return nil
	}
	last, _ := i.status.Get()
	return fmt.Errorf("it is neither Ready nor Degraded after %s, but %s%s", most, last.GetState(), i.lastWords())
}

// works reports whether a role says that it does its work or a part of it.
func works(now *rolev1.WatchResponse) bool {
	return now.GetState() == rolev1.RoleState_ROLE_STATE_READY || now.GetState() == rolev1.RoleState_ROLE_STATE_DEGRADED
}

// blocked reports whether a role says that something outside it blocks its work.
func blocked(now *rolev1.WatchResponse) bool {
	return now.GetState() == rolev1.RoleState_ROLE_STATE_BLOCKED
}

// mayLack reports whether a machine may lack what a role needs. A role without further wishes has everything here.
func mayLack(of *rolev1.RoleManifest) bool {
	powers, _ := remit.Of(of.GetGrants())
	return hasPowers(of) || !powers.Connect.None()
}

// foundBlocked records that this machine keeps a role Blocked.
func (s *subject) foundBlocked(role, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	role, reason = limits.Clean(role), tidy(reason)
	if n := slices.IndexFunc(s.blocked, func(b Blocked) bool { return b.Role == role }); n >= 0 {
		s.blocked[n].Reason = reason
		return
	}
	s.blocked = append(s.blocked, Blocked{Role: role, Reason: reason})
}

// cannotWork returns an error if this machine keeps the role Blocked, so that a check is impossible.
func (i *instance) cannotWork() error {
	if now, _ := i.status.Get(); blocked(now) {
		return &cannotError{fmt.Sprintf("it is Blocked on this machine: %s", now.GetReason())}
	}
	return nil
}

// waitingTime is how long a role is left alone that may wait for something that the suite lacks.
const waitingTime = 500 * time.Millisecond

// waitsFor returns what a role may wait for before it is Ready; empty: nothing.
func waitsFor(of *rolev1.RoleManifest) string {
	switch {
	case of.GetConsensusUser() != "":
		return "its ConsensusUser, whose store may not be open yet"
	case len(of.GetRequires()) > 0:
		return "what it requires"
	case len(of.GetProvides()) > 0:
		return "the calls of the capability that it provides"
	}
	return ""
}

// stop asks the role to stop. The error is a gRPC status.
func (i *instance) stop(ctx context.Context, grace time.Duration) error {
	return i.callStop(ctx, i.request.GetInstanceId(), grace)
}

func (p *process) callStop(ctx context.Context, id string, grace time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, grace+exitTime)
	defer cancel()
	_, err := p.service().Stop(ctx, stopRequest(id, grace))
	return err
}

func stopRequest(id string, grace time.Duration) *rolev1.StopRequest {
	return &rolev1.StopRequest{InstanceId: id, Grace: durationpb.New(grace), Reason: rolev1.StopReason_STOP_REASON_RESTART}
}

// endAll ends every process and waits for them.
func (s *subject) endAll() error {
	s.mu.Lock()
	open, watches := s.open, s.watches
	s.open, s.watches = nil, nil
	s.mu.Unlock()
	var problems []error
	for _, p := range open {
		problems = append(problems, p.end())
	}
	for _, i := range watches {
		i.cancel()
		<-i.watch
	}
	return errors.Join(problems...)
}

// end ends one process before the check is over.
func (s *subject) end(p *process) error {
	s.mu.Lock()
	for n, other := range s.open {
		if other == p {
			s.open = append(s.open[:n], s.open[n+1:]...)
			break
		}
	}
	s.mu.Unlock()
	return p.end()
}

// eachRole calls ask for every role of the manifest.
func (s *subject) eachRole(ask func(*rolev1.RoleManifest) error) error {
	var problems []error
	for _, of := range s.manifest.GetRoles() {
		if err := ask(of); err != nil {
			problems = append(problems, fmt.Errorf("role %s: %w", of.GetName(), err))
		}
	}
	return errors.Join(problems...)
}
