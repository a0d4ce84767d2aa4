package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/plugin/store"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

const (
	// What a role may say about its configuration.
	maxConfigurationProblems = 100
	maxProblem               = 1 << 10
)

// Launch runs a prepared instance: it starts the process, connects to it and has it start the role, and returns when the role has accepted its
// configuration. Whether the role is Ready is in the instance's status. hostSocket is where the core serves reeve.host.v1 to the instance.
//
// When it fails, everything is as before Prepare. A *ConfigurationError says that the role refuses its configuration, and a
// *store.VersionError that plugin and core have no common protocol version: both until something changes. Every other failure is a *LaunchError.
// If the context ends the process is killed; after Launch has returned, the context means nothing to the instance.
func (l *Launcher) Launch(ctx context.Context, remit *Remit, spec Spec, hostSocket string) (*Instance, error) {
	instance, lines, err := l.launch(ctx, remit, spec, hostSocket)
	if err == nil {
		return instance, nil
	}
	if discardErr := l.Discard(remit); discardErr != nil {
		l.log.Warn("cleaning up after an instance that was not launched", "instance", remit.InstanceID, "error", discardErr)
	}
	var configuration *ConfigurationError
	var version *store.VersionError
	var missing *store.MissingError
	switch {
	case errors.As(err, &configuration):
		return nil, configuration
	case errors.As(err, &missing):
		return nil, missing
	case errors.As(err, &version):
		version.Plugin = "plugin " + spec.Plugin.GetName()
		return nil, version
	}
	digest, _ := store.Digest(spec.Plugin)
	failed := &LaunchError{
		Role: remit.Role, Plugin: spec.Plugin.GetName(), Version: spec.Plugin.GetVersion(), Digest: digest,
		Err: err, Lines: lines, Node: ofNode(err),
	}
	var exited *exitedError
	if errors.As(err, &exited) {
		failed.Exit = &exited.exit
	}
	return nil, failed
}

func (l *Launcher) launch(ctx context.Context, remit *Remit, spec Spec, hostSocket string) (*Instance, []string, error) {
	digest, err := store.Digest(spec.Plugin)
	if err != nil {
		return nil, nil, err
	}
	if digest != remit.digest {
		return nil, nil, fmt.Errorf("the instance was prepared for %s, and the catalog now has %s", store.Short(remit.digest), store.Short(digest))
	}
	s, lines, err := l.openFor(ctx, remit, spec, hostSocket)
	if err != nil {
		return nil, lines, err
	}
	err = s.whileAlive(ctx, func(ctx context.Context) error {
		return s.start(ctx, spec, hostSocket)
	})
	var refused *ConfigurationError
	if spec.Debug != nil && (errors.As(err, &refused) || errors.Is(err, errNotTaken)) {
		// The process refused and was not started. It goes on waiting.
		return nil, nil, errors.Join(err, s.leave())
	}
	if err != nil {
		unclean := s.end(ctx)
		return nil, s.log.Lines(), errors.Join(s.why(err), unclean)
	}
	return newInstance(s, spec, nil), nil, nil
}

// openFor launches the process of an instance, or takes the one that was started by hand.
func (l *Launcher) openFor(ctx context.Context, remit *Remit, spec Spec, hostSocket string) (opened *session, lines []string, err error) {
	if spec.Debug != nil {
		return l.openDebugged(ctx, remit, spec.Debug)
	}
	executable, err := l.executable(spec.Plugin.GetName(), remit.digest)
	if err != nil {
		return nil, nil, err
	}
	recorded, err := recordSpec(spec)
	if err != nil {
		return nil, nil, errors.Join(err, executable.Close())
	}
	return l.open(ctx, remit, executable, remit.digest, recorded, WorkloadVariable+"=unix://"+hostSocket)
}

// errNotTaken says that the process was not started: it is an instance already, or is stopping.
var errNotTaken = errors.New("refuses Start")

// start has the process start the role.
func (s *session) start(ctx context.Context, spec Spec, hostSocket string) error {
	// There is no timeout: a breakpoint may delay the answer.
	if spec.Debug == nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.launcher.patience.Start)
		defer cancel()
	}
	_, err := rolev1.NewRoleServiceClient(s.conn).Start(ctx, &rolev1.StartRequest{
		InstanceId:              s.remit.InstanceID,
		Role:                    s.remit.Role,
		Configuration:           spec.Configuration,
		ConfigurationGeneration: spec.Generation,
		HostSocket:              hostSocket,
		DataDirectory:           s.launcher.roleDir(s.remit.Role),
		RuntimeDirectory:        s.launcher.runtimeDir(s.remit.Name),
		CoreUid:                 uint32(os.Geteuid()),
		Grants:                  s.remit.Grants.GetGrants(),
		NodeId:                  s.launcher.nodeID,
		MemoryBytes:             uint64(s.launcher.policy(s.remit).Limits().MemoryBytes),
		LaterStates:             []rolev1.RoleState{rolev1.RoleState_ROLE_STATE_BLOCKED},
	})
	switch status.Code(err) {
	case codes.OK:
		return nil
	case codes.InvalidArgument:
		return configurationError(s.remit.Role, status.Convert(err))
	case codes.Unimplemented:
		return withoutRoleProtocol()
	case codes.DeadlineExceeded, codes.Canceled:
		if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.DeadlineExceeded) {
			return cause
		}
		return fmt.Errorf("does not answer Start within %s", s.launcher.patience.Start)
	case codes.FailedPrecondition:
		return fmt.Errorf("%w: %s", errNotTaken, textFrom(err.Error()))
	}
	return breaks(err, fmt.Errorf("refuses Start: %s", textFrom(err.Error())))
}

func configurationError(role string, refusal *status.Status) error {
	refused := &ConfigurationError{Role: role}
	for _, detail := range refusal.Details() {
		problem, ok := detail.(*rolev1.ConfigurationProblem)
		if !ok || len(refused.Problems) == maxConfigurationProblems {
			continue
		}
		refused.Problems = append(refused.Problems, ConfigurationProblem{
			Path: textFrom(problem.GetPath()), Message: textFrom(problem.GetMessage()),
		})
	}
	if len(refused.Problems) == 0 {
		refused.Problems = []ConfigurationProblem{{Message: textFrom(refusal.Message())}}
	}
	return refused
}
