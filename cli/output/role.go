package output

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// rolledBackText is what happened, in one sentence without its full stop.
func rolledBackText(r *clusterv1.RolledBack) string {
	text := "version " + r.GetVersion() + " did not work here"
	if r.GetReason() != "" {
		text += ": " + r.GetReason()
	}
	return strings.TrimSuffix(text, ".")
}

// howEnded says how the process of a failure ended, for people; empty where it is not known.
func howEnded(f *clusterv1.Failure) string {
	how := ""
	switch {
	case f.GetSignal() != "":
		how = "signal " + f.GetSignal()
	case f.ExitCode != nil:
		how = "exit code " + strconv.Itoa(int(f.GetExitCode()))
	}
	if f.GetOutOfMemory() {
		return strings.TrimSuffix("out of memory, "+how, ", ")
	}
	return how
}

// crashBudget says how much of the crash budget is used; empty where it is not known.
func crashBudget(f *clusterv1.Failure) string {
	if f.GetFailures() == 0 {
		return ""
	}
	return fmt.Sprintf("%d failures in %s, %d are allowed", f.GetFailures(), short(f.GetWindow().AsDuration()), f.GetBudget())
}

// ExplainFailure is a failure in one sentence, without its full stop, and without the lines that the role wrote.
func ExplainFailure(f *clusterv1.Failure) string {
	text := cmp.Or(f.GetCause(), "it ended by itself")
	var more []string
	// A cause that is the end of the process says so itself.
	says := strings.Contains(text, "signal") || strings.Contains(text, "exit")
	switch how := howEnded(f); {
	case f.GetOutOfMemory() && !strings.Contains(text, "memory") && says:
		more = append(more, "out of memory")
	case how != "" && !says:
		more = append(more, how)
	}
	if budget := crashBudget(f); budget != "" {
		more = append(more, budget)
	}
	if len(more) > 0 {
		text += " (" + strings.Join(more, "; ") + ")"
	}
	return Clean(text)
}

var roleHead = []string{"ROLE", "STATE", "PID", "RESTARTS", "SINCE", "TIER", "ENDPOINTS", "REASON"}

func roleTable(w io.Writer, roles []*clusterv1.InstanceStatus, now time.Time) {
	row(w, roleHead...)
	for _, role := range roles {
		roleRow(w, role, now)
	}
	for _, role := range roles {
		if state := State(role.GetState()); role.GetLastFailure() != nil && (state == "Failed" || state == "Backoff") {
			failureTable(w, role, now)
		}
		if role.GetRolledBack() != nil {
			_, _ = fmt.Fprintf(w, "\nRole %s runs version %s: %s\n", Clean(role.GetRole()), Clean(role.GetPluginVersion()), Clean(rolledBackText(role.GetRolledBack())))
		}
	}
}

// failureTable says why a role does not run: its cause and the last lines that it wrote.
func failureTable(w io.Writer, r *clusterv1.InstanceStatus, now time.Time) {
	when := ""
	if at := moment(r.GetLastFailure().GetTime()); at != nil {
		when = " " + age(at, now) + " ago"
	}
	_, _ = fmt.Fprintf(w, "\nRole %s failed%s: %s\n", Clean(r.GetRole()), when, ExplainFailure(r.GetLastFailure()))
	lines(w, "  | ", r.GetLastFailure().GetLines())
}

// lines writes what a role wrote, marked as such.
func lines(w io.Writer, mark string, of []string) {
	for _, line := range of {
		_, _ = fmt.Fprintln(w, mark+Clean(line))
	}
}

func roleRow(w io.Writer, r *clusterv1.InstanceStatus, now time.Time) {
	row(w, r.GetRole(), State(r.GetState()), processID(r), number(r.GetRestarts()), age(moment(r.GetSince()), now), Kind(r.GetTier()), endpoints(r.GetEndpoints()), r.GetReason())
}

// processID is the process of a role; empty while none runs.
func processID(r *clusterv1.InstanceStatus) string {
	if r.GetPid() == 0 {
		return ""
	}
	return number(r.GetPid())
}

func endpoints(of []*rolev1.Endpoint) string {
	var texts []string
	for _, endpoint := range of {
		texts = append(texts, endpoint.GetName()+"="+endpoint.GetAddress())
	}
	return strings.Join(texts, " ")
}
