package conformance

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/proto/limits"

	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// usable are the checks that must pass to start any role.
func usable(more ...string) []string {
	return append([]string{"manifest.protocols", "manifest.valid", "manifest.schema"}, more...)
}

// started are the checks that must pass to see any role at work.
func started(more ...string) []string {
	return append([]string{"lifecycle.start", "lifecycle.status", "lifecycle.ready"}, more...)
}

func lifecycleChecks() []Check {
	return []Check{
		{
			ID:    "lifecycle.not-started",
			needs: usable(),
			Sentence: "Before Start, Watch, CheckHealth and GetMetrics answer FailedPrecondition (the last two may answer Unimplemented): the core must not " +
				"take a process in which nothing runs for a role.",
			run: checkNotStarted,
		},
		{
			ID:       "lifecycle.unknown-role",
			needs:    usable(),
			Sentence: "Start refuses a role that the manifest does not name. The owner has not approved such a role.",
			run:      checkUnknownRole,
		},
		{
			ID:    "lifecycle.start",
			needs: usable(),
			Sentence: fmt.Sprintf("Start accepts every role that the manifest names, within %s, with a configuration that fits its schema (none, if that requires nothing): "+
				"a manifest must not name what is not there.", startTime),
			run: checkStart,
		},
		{
			ID:    "lifecycle.status",
			needs: []string{"lifecycle.start"},
			Sentence: fmt.Sprintf("Watch states the status within %s of the call, with the instance, the role and the configuration generation of Start, a state that the protocol knows, and "+
				"nothing over its bounds: a status of anything else counts as a failure of the role.", statusTime),
			run: checkStatus,
		},
		{
			ID:    "lifecycle.ready",
			needs: []string{"lifecycle.status"},
			Sentence: fmt.Sprintf("A role that needs nothing but its host is Ready, or Degraded, within %s: what waits for it is held back until then. A role with a ConsensusUser, with "+
				"requirements or with capabilities may wait for those; one that wants powers, paths, capabilities or the network beyond it may be Blocked with a reason, where the machine lacks what it needs.", readyTime),
			absent: func(manifest *rolev1.Manifest) string {
				return noneOf(manifest, func(of *rolev1.RoleManifest) bool { return waitsFor(of) == "" }, "every role has a ConsensusUser, requirements or capabilities, and may wait for them")
			},
			run: checkReady,
		},
		{
			ID:       "lifecycle.start-twice",
			needs:    started(),
			Sentence: "Start is accepted again for the same instance, and refused with FailedPrecondition for another one: a core that was interrupted asks again, and a process is one instance.",
			run:      checkStartTwice,
		},
		{
			ID:       "lifecycle.health",
			needs:    started(),
			Sentence: fmt.Sprintf("CheckHealth answers within %s while the role runs, with OK or Unimplemented: a role that does not is ended and started again.", statusTime),
			run:      checkHealth,
		},
		{
			ID:       "lifecycle.metrics",
			needs:    started(),
			Sentence: fmt.Sprintf("GetMetrics answers Unimplemented, or at most %d KiB in the text format of Prometheus: the core merges it into the metrics of the node.", limits.Metrics>>10),
			run:      checkMetrics,
		},
	}
}

func checkNotStarted(ctx context.Context, s *subject) (string, error) {
	p, err := s.connected(ctx)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	var problems []error
	want := func(call string, err error, also ...codes.Code) {
		code := status.Code(err)
		for _, allowed := range append(also, codes.FailedPrecondition) {
			if code == allowed {
				return
			}
		}
		problems = append(problems, fmt.Errorf("before Start, %s answers %s, want %s", call, code, codes.FailedPrecondition))
	}
	stream, err := p.service().Watch(ctx, &rolev1.WatchRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	want("Watch", err)
	_, err = p.service().CheckHealth(ctx, &rolev1.CheckHealthRequest{})
	want("CheckHealth", err, codes.Unimplemented)
	_, err = p.service().GetMetrics(ctx, &rolev1.GetMetricsRequest{})
	want("GetMetrics", err, codes.Unimplemented)
	return "", errors.Join(problems...)
}

func checkUnknownRole(ctx context.Context, s *subject) (string, error) {
	data, err := s.directory()
	if err != nil {
		return "", err
	}
	p, request, err := s.prepare(ctx, &rolev1.RoleManifest{Name: "no-role-of-this-plugin"}, data, "")
	if err != nil {
		return "", err
	}
	switch err := p.callStart(ctx, request); status.Code(err) {
	case codes.OK:
		return "", fmt.Errorf("it starts a role %q, which its manifest does not name", request.GetRole())
	case codes.DeadlineExceeded, codes.Unavailable:
		return "", fmt.Errorf("asked for a role that its manifest does not name, it answers Start with %w%s", err, p.lastWords())
	}
	return "", nil
}

func checkStart(ctx context.Context, s *subject) (string, error) {
	return "", s.eachRole(func(of *rolev1.RoleManifest) error {
		_, err := s.start(ctx, of, "")
		return err
	})
}

func checkStatus(ctx context.Context, s *subject) (string, error) {
	return "", s.eachRole(func(of *rolev1.RoleManifest) error {
		i, err := s.start(ctx, of, "")
		if err != nil {
			return err
		}
		now, err := i.await(ctx, statusTime, func(*rolev1.WatchResponse) bool { return true })
		if err != nil {
			return fmt.Errorf("it states no status within %s%s", statusTime, i.lastWords())
		}
		return judgeStatus(now, i.request)
	})
}

// judgeStatus returns what the core would not accept.
func judgeStatus(now *rolev1.WatchResponse, of *rolev1.StartRequest) error {
	var problems []error
	problem := func(format string, arguments ...any) { problems = append(problems, fmt.Errorf(format, arguments...)) }
	if now.GetInstanceId() != of.GetInstanceId() || now.GetRole() != of.GetRole() || now.GetConfigurationGeneration() != of.GetConfigurationGeneration() {
		problem("its status is of instance %q, role %q, generation %d; it was started as %q, %q, %d", now.GetInstanceId(), now.GetRole(),
			now.GetConfigurationGeneration(), of.GetInstanceId(), of.GetRole(), of.GetConfigurationGeneration())
	}
	if _, known := rolev1.RoleState_name[int32(now.GetState())]; !known || now.GetState() == rolev1.RoleState_ROLE_STATE_UNSPECIFIED {
		problem("its state is %d, which the protocol does not know", now.GetState())
	}
	if len(now.GetEndpoints()) > limits.Endpoints || len(now.GetValues()) > limits.Values {
		problem("it has %d endpoints and %d values; at most %d and %d", len(now.GetEndpoints()), len(now.GetValues()), limits.Endpoints, limits.Values)
	}
	for _, endpoint := range now.GetEndpoints() {
		if !limits.NameOK(endpoint.GetName()) || len(endpoint.GetAddress()) > limits.Address || !limits.Line(endpoint.GetAddress()) {
			problem("its endpoint %q is over the bounds, or not one line", endpoint.GetName())
		}
	}
	for name, value := range now.GetValues() {
		if !limits.NameOK(name) || len(value) > limits.Value {
			problem("its value %q is over the bounds, or its name is not one line", name)
		}
	}
	return errors.Join(problems...)
}

func checkReady(ctx context.Context, s *subject) (string, error) {
	var found []string
	err := s.eachRole(func(of *rolev1.RoleManifest) error {
		if waitsFor(of) != "" {
			return nil
		}
		began := time.Now()
		i, err := s.start(ctx, of, "")
		if err != nil {
			return err
		}
		if err := i.settle(ctx, of); err != nil {
			return err
		}
		told := of.GetName()
		if now, _ := i.status.Get(); blocked(now) {
			told += fmt.Sprintf(" Blocked by this machine (%s)", now.GetReason())
		}
		found = append(found, fmt.Sprintf("%s after %d ms", told, time.Since(began).Milliseconds()))
		return nil
	})
	return strings.Join(found, ", "), err
}

func checkStartTwice(ctx context.Context, s *subject) (string, error) {
	return "", s.eachRole(func(of *rolev1.RoleManifest) error {
		i, err := s.start(ctx, of, "")
		if err != nil {
			return err
		}
		if err := i.callStart(ctx, i.request); err != nil {
			return fmt.Errorf("started once more as the same instance, it answers %w", err)
		}
		other := s.request(i.process, of, i.request.GetDataDirectory(), i.request.GetConfiguration())
		if err := i.callStart(ctx, other); status.Code(err) != codes.FailedPrecondition {
			return fmt.Errorf("started as another instance, it answers %s, want %s", status.Code(err), codes.FailedPrecondition)
		}
		return nil
	})
}

func checkHealth(ctx context.Context, s *subject) (string, error) {
	return "", s.eachRole(func(of *rolev1.RoleManifest) error {
		i, err := s.start(ctx, of, "")
		if err != nil {
			return err
		}
		if err := i.settle(ctx, of); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, statusTime)
		defer cancel()
		_, err = i.service().CheckHealth(ctx, &rolev1.CheckHealthRequest{})
		if code := status.Code(err); code != codes.OK && code != codes.Unimplemented {
			return fmt.Errorf("it answers CheckHealth with %w", err)
		}
		return nil
	})
}

// sample matches a line of Prometheus' text format other than comments.
var sample = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*(\{([a-zA-Z_][a-zA-Z0-9_]*="([^"\\]|\\[\\"n])*",?)*\})?[ \t]+([-+]?[0-9.eE+-]+|[-+]?Inf|NaN)([ \t]+-?[0-9]+)?$`)

func checkMetrics(ctx context.Context, s *subject) (string, error) {
	return "", s.eachRole(func(of *rolev1.RoleManifest) error {
		i, err := s.start(ctx, of, "")
		if err != nil {
			return err
		}
		if err := i.settle(ctx, of); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, statusTime)
		defer cancel()
		answer, err := i.service().GetMetrics(ctx, &rolev1.GetMetricsRequest{})
		if status.Code(err) == codes.Unimplemented {
			return nil
		}
		if err != nil {
			return fmt.Errorf("it answers GetMetrics with %w", err)
		}
		if len(answer.GetText()) > limits.Metrics {
			return fmt.Errorf("its metrics have %d bytes, at most %d are taken", len(answer.GetText()), limits.Metrics)
		}
		for line := range strings.Lines(string(answer.GetText())) {
			line = strings.TrimSpace(line)
			if line != "" && !strings.HasPrefix(line, "#") && !sample.MatchString(line) {
				return fmt.Errorf("%q is no line of Prometheus' text format", line[:min(len(line), 200)])
			}
		}
		return nil
	})
}
