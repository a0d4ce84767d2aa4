package roles

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/plugin/output"
	"github.com/reeveproject/reeve/core/plugin/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// failing is a failure that is being dealt with.
type failing struct {
	cause string
	// unresponsive says that the role is ended since it does not answer.
	unresponsive bool
}

// unprepared is why an instance could not even be tried.
type unprepared struct{ error }

func (u *unprepared) Unwrap() error { return u.error }

// failure is what is shown of an end. exit may be nil.
func (a *actor) failure(instanceID, cause string, exit *plugin.Exit, lines []string) *clusterv1.Failure {
	f := &clusterv1.Failure{
		Time: timestamppb.New(time.Now()), Cause: cause, InstanceId: instanceID, Lines: output.LastLines(lines, maxLines, maxLine),
	}
	f.OutOfMemory = exit != nil && exit.OutOfMemory
	switch {
	case exit == nil:
	case exit.Signal != 0:
		f.Signal = cmp.Or(unix.SignalName(exit.Signal), fmt.Sprintf("signal %d", int(exit.Signal)))
	case exit.Code >= 0:
		f.ExitCode = proto.Int32(int32(exit.Code))
	}
	return f
}

// fell has what failed started again, later the more often it did, as long as its crash budget lasts. Of that nothing is used where the node is short of
// what roles need.
func (a *actor) fell(kind string, f *clusterv1.Failure, fingerprint string) {
	message := "failed"
	if kind == eventUnresponsive {
		message = "does not answer"
	}
	if shortage := a.shortage(); shortage != "" {
		f.Cause += "; " + shortage
		a.cause = f.GetCause()
		f = a.history.excuse(f, a.r.config.budget(a.role))
		a.recordFailure(warning, kind, message+": "+f.GetCause(), f)
		delay := a.retry(fingerprint)
		a.log.Warn("ended by itself and is started again; it is not the role's fault", "reason", a.cause, "after", delay)
		return
	}
	if a.goBack(kind, f) {
		return
	}
	if a.trial == nil {
		a.works = ""
	}
	a.cause = f.GetCause()
	f, spent := a.history.count(f, fingerprint, a.r.config.budget(a.role))
	a.recordFailure(warning, kind, message+": "+f.GetCause(), f)
	if spent {
		reason := a.givenUpReason()
		a.log.Error("failed too often and is not started again", "reason", reason)
		a.recordFailure(serious, eventFailed, "is Failed: "+reason, f)
		a.fallen = ""
		return
	}
	delay := a.retry(fingerprint)
	a.log.Warn("ended by itself and is started again", "reason", a.cause, "failures", f.GetFailures(), "budget", f.GetBudget(), "after", delay)
}

// shortage says what the role lacks that is not its own; "": nothing.
func (a *actor) shortage() string {
	if shortage := a.r.config.Shortage(); shortage != "" {
		return shortage
	}
	if away := a.r.config.StoreAway; away != nil && usesStore(a.seen.manifest) {
		return away()
	}
	return ""
}

// usesStore reports whether a role needs the consensus store, is of it, or requires the cluster API.
func usesStore(manifest *rolev1.RoleManifest) bool {
	ofStore := func(name string) bool { return name == CapabilityConsensus || name == CapabilityCluster }
	return manifest.GetConsensusUser() != "" || slices.ContainsFunc(manifest.GetRequires(), ofStore) || slices.ContainsFunc(manifest.GetProvides(), ofStore)
}

const (
	// knownWithin is how soon the node knows that it lacks something. Roles may notice it first, and fail.
	knownWithin = 15 * time.Second
	// pardonEvery is how often it is looked whether a role that has just failed did so for that.
	pardonEvery = 500 * time.Millisecond
)

// recently reports whether the node may not have known at that time what it lacks now.
func recently(at time.Time) bool {
	since := time.Since(at)
	return since >= 0 && since < knownWithin
}

// late tells when to look again whether what has just failed did so for what the node lacks; nil: nothing has.
func (a *actor) late() <-chan time.Time {
	if a.seen.desired == nil || !a.history.countsLately() {
		return nil
	}
	return time.After(pardonEvery)
}

// pardon holds nothing against the role that failed just before the node knew what it lacks. It reports whether the role was given up for that: it is then started again. A version that was gone back
// from stays so: the one before it works, and the store has no leader for a moment at every election.
func (a *actor) pardon() bool {
	shortage := a.shortage()
	if shortage == "" || !a.history.forgetLate() {
		return false
	}
	f := proto.CloneOf(a.history.lastFailure())
	f.Cause += "; " + shortage
	f = a.history.excuse(f, a.r.config.budget(a.role))
	a.cause = f.GetCause()
	a.retry(a.seen.fingerprint)
	a.log.Warn("is tried again; it is not the role's fault", "reason", a.cause)
	a.recordFailure(info, eventRestarted, "is tried again, since it is not to blame: "+a.cause, f)
	return true
}

func (a *actor) retry(fingerprint string) (delay time.Duration) {
	delay = min(a.backoff.NextBackOff(), a.r.config.BackoffMax)
	a.fallen, a.nextTry = fingerprint, time.Now().Add(delay)
	return delay.Round(time.Millisecond)
}

// givenUpReason says why a role is not started any more, and what is to be done.
func (a *actor) givenUpReason() string {
	f := a.history.lastFailure()
	node, _, _ := strings.Cut(f.GetInstanceId(), "/")
	return fmt.Sprintf("it failed %s within %s, and %d are allowed: %s; it is started again by: reeve node role restart %s %s",
		times(f.GetFailures()), spell(f.GetWindow().AsDuration()), f.GetBudget(), f.GetCause(), cmp.Or(node, "NODE"), a.role)
}

func times(n uint32) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// notLaunched decides what a launch that failed means: that the role cannot run until something changes, that the node could not launch it, which
// is not the role's failure, or that the role failed.
func (a *actor) notLaunched(instanceID string, err error) {
	var launch *plugin.LaunchError
	var exit *plugin.Exit
	var lines []string
	if errors.As(err, &launch) {
		exit, lines = launch.Exit, launch.Lines
	}
	var notPrepared *unprepared
	byNode := errors.As(err, &notPrepared) || launch != nil && launch.Node
	cause := causeOf(err)
	if byNode && !forGood(err) {
		cause = "the node cannot launch it: " + strings.TrimPrefix(err.Error(), "plugin: ")
	}
	f := a.failure(instanceID, cause, exit, lines)
	switch {
	case forGood(err) && a.goBack(eventNotLaunched, f):
	case forGood(err):
		a.hopeless, a.cause = a.seen.retry, cause
		f = a.history.mention(f, a.r.config.budget(a.role))
		a.log.Error("cannot run until something changes", "reason", cause)
		a.recordFailure(serious, eventFailed, "is Failed: "+f.GetCause(), f)
	case byNode:
		a.cause = cause
		f = a.history.mention(f, a.r.config.budget(a.role))
		delay := a.retry(a.seen.fingerprint)
		a.log.Warn("not launched; the node tries again", "reason", cause, "after", delay)
		if !a.notLaunchedTold {
			a.notLaunchedTold = true
			a.recordFailure(warning, eventNotLaunched, "was not launched: "+f.GetCause(), f)
		}
	default:
		a.fell(eventCrashed, f, a.seen.fingerprint)
	}
}

// forGood reports whether trying again without a change is useless.
func forGood(err error) bool {
	var (
		configuration *plugin.ConfigurationError
		missing       *store.MissingError
		unknown       *plugin.UnknownRoleError
		version       *store.VersionError
	)
	return errors.As(err, &configuration) || errors.As(err, &missing) || errors.As(err, &unknown) || errors.As(err, &version)
}

// causeOf is an error as a reason beside the role's name.
func causeOf(err error) string {
	var launch *plugin.LaunchError
	if errors.As(err, &launch) {
		if cause := launch.Cause(); strings.HasPrefix(cause, "its ") {
			return "the launch failed: " + cause
		}
		return "the launch failed: it " + launch.Cause()
	}
	var configuration *plugin.ConfigurationError
	if errors.As(err, &configuration) {
		return strings.TrimPrefix(configuration.Error(), fmt.Sprintf("plugin: role %s ", configuration.Role))
	}
	return strings.TrimPrefix(err.Error(), "plugin: ")
}
