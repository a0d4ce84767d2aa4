package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/sdk/conformance/internal/faults"
	"github.com/reeveproject/reeve/sdk/event"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// role is the RoleService, and the role that runs.
type role struct {
	rolev1.UnimplementedRoleServiceServer
	over chan struct{} // closed when the process is to end
	once sync.Once

	mu       sync.Mutex
	instance string
	data     string
	ended    bool
	stops    int
	// stopsBegun counts the calls of Stop that have begun, whose requests may be on their way yet.
	stopsBegun atomic.Int64
	watches    int
	status     event.Value[*rolev1.WatchResponse]

	// kept is what some mutants never let go of.
	kept struct {
		files  []*os.File
		memory [][]byte
	}
	// away says that the role does not hear of its node.
	away atomic.Bool
}

func newRole() *role { return &role{over: make(chan struct{})} }

func (r *role) started() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.instance != ""
}

func (r *role) Describe(ctx context.Context, _ *rolev1.DescribeRequest) (*rolev1.DescribeResponse, error) {
	switch fault {
	case faults.DescribeFails:
		return nil, status.Error(codes.Internal, "not today")
	case faults.DescribeHangs:
		<-ctx.Done()
	}
	return &rolev1.DescribeResponse{Manifest: manifest()}, nil
}

func (r *role) Start(_ context.Context, request *rolev1.StartRequest) (*rolev1.StartResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.instance == request.GetInstanceId() && fault == faults.RefusesItself:
		return nil, status.Error(codes.FailedPrecondition, "it runs already")
	case r.instance == request.GetInstanceId(), r.instance != "" && fault == faults.SecondInstance:
		return &rolev1.StartResponse{}, nil
	case r.instance != "" || r.ended:
		return nil, status.Error(codes.FailedPrecondition, "this process is another instance, or ends")
	case !slices.Contains([]string{mutant, bare, keeper, server, steward}, request.GetRole()) && fault != faults.StartsAnyRole:
		return nil, status.Error(codes.NotFound, "there is no such role")
	}
	if fault == faults.RefusesFields && len(request.ProtoReflect().GetUnknown()) > 0 {
		return nil, status.Error(codes.InvalidArgument, "there is a field that this plugin does not know")
	}
	if err := checkConfiguration(request); err != nil {
		return nil, err
	}
	r.instance, r.data = request.GetInstanceId(), request.GetDataDirectory()
	now := &rolev1.WatchResponse{
		InstanceId: request.GetInstanceId(), Role: request.GetRole(), ConfigurationGeneration: request.GetConfigurationGeneration(), State: rolev1.RoleState_ROLE_STATE_STARTING,
	}
	switch fault {
	case faults.OtherInstance:
		now.InstanceId += "0"
	case faults.StatusUnbounded:
		now.Values = map[string]string{"too long": strings.Repeat("a", 1<<13)}
	}
	r.status.Set(now)
	go r.run(request)
	return &rolev1.StartResponse{}, nil
}

// run comes to Ready.
func (r *role) run(request *rolev1.StartRequest) {
	logLine("info", "the role starts")
	state, reason := rolev1.RoleState_ROLE_STATE_READY, ""
	switch fault {
	case faults.LongLine:
		logLine("info", strings.Repeat("long ", 4<<10))
	case faults.LogsSecret:
		logLine("debug", "configured with "+request.GetConfiguration())
	case faults.NeverReady:
		return
	case faults.LeavesChild:
		if err := leaveChild(); err != nil {
			logLine("error", err.Error())
		}
	case faults.Floods:
		// All of it is written before the role is Ready, from when on it is looked at.
		for range 8 << 10 {
			logLine("info", strings.Repeat("flood ", 20))
		}
	}
	if err := r.mark(); err != "" {
		state, reason = rolev1.RoleState_ROLE_STATE_FAILED, err
	}
	if err := r.cost(); err != nil {
		state, reason = rolev1.RoleState_ROLE_STATE_FAILED, err.Error()
	}
	conn, err := dial(request.GetHostSocket())
	if err != nil {
		state, reason = rolev1.RoleState_ROLE_STATE_FAILED, err.Error()
	}
	host := hostv1.NewHostServiceClient(conn)
	known := make(chan struct{})
	go r.followMembership(host, request.GetHostSocket(), known)
	<-known
	if request.GetRole() == keeper && state == ready {
		r.keep(host)
	}
	switch {
	case request.GetRole() == server && fault == faults.Blocked: // it does nothing yet
	case request.GetRole() == server:
		r.listen()
	case request.GetRole() == steward && state == ready:
		state, reason = nameMachine(host)
	case fault == faults.NeedsNewHost:
		needTrust(host)
	}
	if known := slices.Contains(request.GetLaterStates(), blocked); state == ready {
		state, reason = lacking(known)
	}
	r.enter(state, reason)
	if fault == faults.NeverRests {
		go r.fidget()
	}
}

// lacking is what the role says that its machine lacks, in the state for that; Ready: nothing.
func lacking(known bool) (state rolev1.RoleState, reason string) {
	switch fault {
	case faults.Blocked, faults.BlockedConfined:
		if !known {
			return rolev1.RoleState_ROLE_STATE_STARTING, "there is no lamp"
		}
		return blocked, "there is no lamp"
	case faults.BlockedUnasked:
		return blocked, "there is no lamp"
	case faults.BlockedSilently:
		return blocked, ""
	}
	return ready, ""
}

// mark keeps in the data directory what some mutants fall over. Another error than theirs is none of the plugin's.
func (r *role) mark() string {
	path := filepath.Join(r.data, "mark")
	before, _ := os.ReadFile(path)
	runs, _ := strconv.Atoi(string(before))
	switch {
	case fault == faults.KeepsLock && runs > 0:
		return "another process has the data"
	case fault == faults.TiresOut && runs >= 10:
		return "too much data"
	}
	if fault == faults.StartsSlowly && runs == 7 {
		// The kernel shares a busy processor between threads: several of them get more of it than one.
		var burning sync.WaitGroup
		for range 4 {
			burning.Go(func() {
				for used() < 2500*time.Millisecond {
				}
			})
		}
		burning.Wait()
	}
	if err := os.WriteFile(path, []byte(strconv.Itoa(runs+1)), 0o600); err != nil {
		return err.Error()
	}
	for n := 0; n < 5 && fault == faults.FillsData; n++ {
		if err := os.WriteFile(fmt.Sprintf("%s-%d-%d", path, runs, n), nil, 0o600); err != nil {
			return err.Error()
		}
	}
	return ""
}

// enter changes the state, unless the role stops.
func (r *role) enter(state rolev1.RoleState, reason string) {
	r.status.Update(func(now *rolev1.WatchResponse) *rolev1.WatchResponse {
		if now == nil || now.GetState() == rolev1.RoleState_ROLE_STATE_STOPPED {
			return now
		}
		next := proto.CloneOf(now)
		next.State, next.Reason = state, reason
		return next
	})
}

func (r *role) Watch(_ *rolev1.WatchRequest, stream grpc.ServerStreamingServer[rolev1.WatchResponse]) error {
	if !r.started() {
		return errNotStarted()
	}
	r.mu.Lock()
	r.watches++
	other := r.watches > 1 && fault == faults.OtherAdopted
	r.mu.Unlock()
	for watcher := r.status.Watch(); ; {
		now, err := watcher.Next(stream.Context())
		if err != nil {
			return status.FromContextError(err).Err()
		}
		if other {
			now = proto.CloneOf(now)
			now.InstanceId += "0"
		}
		if err := stream.Send(now); err != nil || now.GetState() == rolev1.RoleState_ROLE_STATE_STOPPED {
			return err
		}
	}
}

func errNotStarted() error { return status.Error(codes.FailedPrecondition, "no role was started") }

// seeBegin is called when a call begins, before its request has come.
func (r *role) seeBegin(ctx context.Context, call *tap.Info) (context.Context, error) {
	if call.FullMethodName == rolev1.RoleService_Stop_FullMethodName {
		r.stopsBegun.Add(1)
	}
	return ctx, nil
}

func (r *role) Stop(ctx context.Context, request *rolev1.StopRequest) (*rolev1.StopResponse, error) {
	r.mu.Lock()
	r.stops++
	second, watched := r.stops > 1, r.watches > 0
	r.mu.Unlock()
	switch {
	case fault == faults.SecondStopPanics && second:
		panic("stopped twice")
	case fault == faults.SecondStopPanics && r.stopsBegun.Load() > 1:
		// The other request is to come while this one is under way.
		<-ctx.Done()
	case fault == faults.StopWhileStarting && !watched: // a core that stops it so early has not come to that
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	case fault == faults.IgnoresGrace && request.GetGrace().AsDuration() < 5*time.Second:
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	case fault == faults.RefusesReason && rolev1.StopReason_name[int32(request.GetReason())] == "":
		return nil, status.Error(codes.InvalidArgument, "there is no such reason")
	case fault == faults.StaysAfterStop:
		return &rolev1.StopResponse{}, nil
	case fault == faults.StopsLate: // by what it says itself, and not by what is usual
		time.Sleep(11 * time.Second)
	}
	r.end()
	return &rolev1.StopResponse{}, nil
}

// adopted reports whether another core has asked for the status.
func (r *role) adopted() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.watches > 1
}

// end ends the role, and the process after it.
func (r *role) end() {
	r.once.Do(func() {
		r.mu.Lock()
		r.ended = true
		data := r.data
		r.mu.Unlock()
		if data != "" {
			if fault == faults.KeepsLock {
				_ = os.Remove(filepath.Join(data, "mark"))
			}
			logLine("info", "the role has stopped")
			r.enter(rolev1.RoleState_ROLE_STATE_STOPPED, "")
		}
		close(r.over)
	})
}

func (r *role) CheckHealth(ctx context.Context, _ *rolev1.CheckHealthRequest) (*rolev1.CheckHealthResponse, error) {
	if !r.started() && fault != faults.AnswersUnstarted {
		return nil, errNotStarted()
	}
	if fault == faults.HealthHangs {
		<-ctx.Done()
	}
	r.leak()
	return &rolev1.CheckHealthResponse{}, nil
}

func (r *role) GetMetrics(context.Context, *rolev1.GetMetricsRequest) (*rolev1.GetMetricsResponse, error) {
	if !r.started() {
		return nil, errNotStarted()
	}
	text := "# HELP mutant_starts_total Starts.\n# TYPE mutant_starts_total counter\nmutant_starts_total{of=\"a \\\"role\\\"\"} 1\n"
	if fault == faults.BadMetrics {
		text += "there is one start\n"
	}
	return &rolev1.GetMetricsResponse{Text: []byte(text)}, nil
}
