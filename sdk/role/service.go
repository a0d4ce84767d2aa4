package role

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/proto/limits"

	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

const (
	// deliverTime is how long a failed role's process waits for the core to read the status. A core that follows needs milliseconds, or seconds on a
	// busy machine. A core that is away will find the process gone.
	deliverTime = 10 * time.Second
	// lastWordTime is the same of a role that was stopped, within the time that the core gives it.
	lastWordTime = time.Second
)

// server is reeve.role.v1's RoleService of one process.
type server struct {
	rolev1.UnimplementedRoleServiceServer
	plugin   Plugin
	manifest *rolev1.Manifest
	newLog   func(name string) hclog.Logger
	gate     *gate

	// mu makes Start atomic, also with regard to Stop.
	mu       sync.Mutex
	stopping bool
	instance atomic.Pointer[instance]

	// started is closed by the first accepted Start. end receives the process's exit status once.
	started chan struct{}
	end     chan int
	// ending lets the first reason to end the process win.
	ending sync.Once
	// delivered is closed when a watcher was sent the final status.
	delivered     chan struct{}
	deliveredOnce sync.Once
}

func newServer(plugin Plugin, newLog func(name string) hclog.Logger) (*server, error) {
	manifest, err := plugin.Manifest()
	if err != nil {
		return nil, err
	}
	s := &server{
		plugin: plugin, manifest: manifest, newLog: newLog,
		started: make(chan struct{}), end: make(chan int, 1), delivered: make(chan struct{}),
	}
	s.gate, err = newGate(plugin.Roles, s.running)
	if err != nil {
		return nil, fmt.Errorf("plugin %s: %w", plugin.Name, err)
	}
	return s, nil
}

// running returns the instance whose services answer.
func (s *server) running() (*instance, error) {
	i := s.instance.Load()
	switch {
	case i == nil:
		return nil, errNotStarted()
	case i.serving.Err() != nil:
		return nil, status.Errorf(codes.FailedPrecondition, "the instance %s has ended", i.id)
	}
	return i, nil
}

func errNotStarted() error {
	return status.Error(codes.FailedPrecondition, "no role was started yet: call RoleService.Start first")
}

// finish ends the process with an exit status, after the calls that are being answered.
func (s *server) finish(code int) {
	s.ending.Do(func() { s.end <- code })
}

// Describe implements rolev1.RoleServiceServer.
func (s *server) Describe(context.Context, *rolev1.DescribeRequest) (*rolev1.DescribeResponse, error) {
	return &rolev1.DescribeResponse{Manifest: s.manifest}, nil
}

// Start implements rolev1.RoleServiceServer.
func (s *server) Start(ctx context.Context, request *rolev1.StartRequest) (*rolev1.StartResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if request.GetInstanceId() == "" {
		return nil, status.Error(codes.InvalidArgument, "the instance ID is empty")
	}
	if i := s.instance.Load(); i != nil {
		if i.id == request.GetInstanceId() {
			return &rolev1.StartResponse{}, nil
		}
		return nil, status.Errorf(codes.FailedPrecondition, "this process is already the instance %s and cannot be %s", i.id, request.GetInstanceId())
	}
	if s.stopping {
		return nil, status.Error(codes.FailedPrecondition, "the process is stopping")
	}
	role, err := s.role(request.GetRole())
	if err != nil {
		return nil, err
	}
	if err := checkConfiguration(role, []byte(request.GetConfiguration()), grantsOf(request)); err != nil {
		return nil, refused(err)
	}
	i, err := newInstance(role, request, s.newLog(role.Name))
	if err != nil {
		return nil, status.Errorf(codes.Internal, "role %s: %s", role.Name, err)
	}
	if role.EndsWithCore {
		if i.core, err = newLifeline(ctx); err != nil {
			i.host.close()
			return nil, status.Errorf(codes.Internal, "role %s must end with its core, but cannot watch it: %s", role.Name, err)
		}
		go func() {
			if i.core.wait() {
				i.log.Warn("the core has ended; the role ends with it")
				s.stop(s.grace(), StopNode)
			}
		}()
	}
	boundHeap(request.GetMemoryBytes())
	s.instance.Store(i)
	close(s.started)
	go func() {
		i.run()
		s.afterRun(i)
	}()
	return &rolev1.StartResponse{}, nil
}

func (s *server) role(name string) (Role, error) {
	names := make([]string, len(s.plugin.Roles))
	for n, role := range s.plugin.Roles {
		if role.Name == name {
			return role, nil
		}
		names[n] = role.Name
	}
	return Role{}, status.Errorf(codes.NotFound, "plugin %s has no role %q; it has %s", s.plugin.Name, name, strings.Join(names, ", "))
}

// checkConfiguration lets the role check its configuration and its grants.
func checkConfiguration(role Role, document []byte, grants []Grant) (err error) {
	if len(document) > 0 && !json.Valid(document) {
		return validJSON(document)
	}
	if role.Configuration == nil && role.CheckConfiguration == nil && role.ConfigurationSchema == "" && !emptyConfiguration(document) {
		return fmt.Errorf("the role %s takes no configuration", role.Name)
	}
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("the role %s panicked while it checked the configuration: %v\n%s", role.Name, cause, debug.Stack())
		}
	}()
	if role.Configuration != nil {
		if err := role.Configuration.Check(document); err != nil {
			return err
		}
	}
	if role.CheckConfiguration != nil {
		if err := role.CheckConfiguration(document); err != nil {
			return err
		}
	}
	if role.CheckGrants != nil {
		return role.CheckGrants(document, grants)
	}
	return nil
}

// emptyConfiguration reports whether a valid document sets nothing.
func emptyConfiguration(document []byte) bool {
	var members map[string]json.RawMessage
	return len(document) == 0 || json.Unmarshal(document, &members) == nil && len(members) == 0
}

// afterRun ends the process of a failed role, after the core was told or deliverTime is over.
func (s *server) afterRun(i *instance) {
	now, _ := i.status.value.Get()
	if now.GetState() == rolev1.RoleState_ROLE_STATE_STOPPED {
		return // stop ends the process
	}
	timer := time.NewTimer(deliverTime)
	defer timer.Stop()
	select {
	case <-s.delivered:
	case <-timer.C:
	}
	s.finish(1)
}

// Watch implements rolev1.RoleServiceServer. The stream ends after the final status.
func (s *server) Watch(_ *rolev1.WatchRequest, stream grpc.ServerStreamingServer[rolev1.WatchResponse]) error {
	i := s.instance.Load()
	if i == nil {
		return errNotStarted()
	}
	watcher := i.status.value.Watch()
	for {
		now, err := watcher.Next(stream.Context())
		if err != nil {
			return status.FromContextError(err).Err()
		}
		if err := stream.Send(now); err != nil {
			return err
		}
		if final(now) {
			s.deliveredOnce.Do(func() { close(s.delivered) })
			return nil
		}
	}
}

// Stop implements rolev1.RoleServiceServer.
func (s *server) Stop(_ context.Context, request *rolev1.StopRequest) (*rolev1.StopResponse, error) {
	if i := s.instance.Load(); i != nil && request.GetInstanceId() != i.id {
		return nil, status.Errorf(codes.FailedPrecondition, "this process is the instance %s, not %q", i.id, request.GetInstanceId())
	}
	grace := s.grace()
	if request.GetGrace() != nil {
		grace = request.GetGrace().AsDuration()
	}
	if !s.stop(grace, stopReasonOf(request.GetReason())) {
		return nil, status.Errorf(codes.DeadlineExceeded, "the role did not stop within its grace period of %s", grace)
	}
	return &rolev1.StopResponse{}, nil
}

// grace is the default grace period: on SIGTERM, when the core has ended, and for a Stop without one.
func (s *server) grace() time.Duration {
	if i := s.instance.Load(); i != nil && i.role.StopGrace > 0 {
		return i.role.StopGrace
	}
	return limits.StopGrace
}

// stop stops the role and then the process. It reports whether the role stopped within its grace period.
func (s *server) stop(grace time.Duration, reason StopReason) bool {
	s.mu.Lock()
	s.stopping = true
	s.mu.Unlock()
	i := s.instance.Load()
	if i == nil {
		s.finish(0)
		return true
	}
	stopped := i.stop(grace, reason)
	now, _ := i.status.value.Get()
	if now.GetState() == rolev1.RoleState_ROLE_STATE_STOPPED {
		if now.GetReason() != "" {
			// Why the role ended with an error is to be known before the process is gone.
			select {
			case <-s.delivered:
			case <-time.After(lastWordTime):
			}
		}
		s.finish(0)
	} else {
		s.finish(1)
	}
	return stopped
}

// recoverUnary and recoverStream keep a panic in a role's service from ending the process. The call fails, and the stack is logged.
func recoverUnary(log hclog.Logger) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (response any, err error) {
		defer recoverCall(log, info.FullMethod, &err)
		return handler(ctx, request)
	}
}

func recoverStream(log hclog.Logger) grpc.StreamServerInterceptor {
	return func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
		defer recoverCall(log, info.FullMethod, &err)
		return handler(server, stream)
	}
}

func recoverCall(log hclog.Logger, method string, err *error) {
	if cause := recover(); cause != nil {
		log.Error("a service of the role panicked", "method", method, "panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
		*err = status.Errorf(codes.Internal, "%s: panic: %v", method, cause)
	}
}
