package output

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// Role is a role on a node: its instance, or why there is none.
type Role struct {
	Role string `json:"role"`
	// State is "Blocked", "Starting", "Ready", "Degraded", "Stopping", "Stopped", "Backoff" or "Failed".
	State  string `json:"state"`
	Reason string `json:"reason"`
	// PID is 0 while no process runs.
	PID        int64             `json:"pid"`
	Restarts   uint32            `json:"restarts"`
	Endpoints  []Endpoint        `json:"endpoints"`
	Values     map[string]string `json:"values"`
	InstanceID string            `json:"instance_id"`
	Plugin     string            `json:"plugin"`
	// PluginVersion and Digest are those of the executable that runs.
	PluginVersion           string     `json:"plugin_version"`
	Digest                  string     `json:"digest"`
	ConfigurationGeneration uint64     `json:"configuration_generation"`
	Since                   *time.Time `json:"since"`
	NextTry                 *time.Time `json:"next_try"`
	// Started is when the present process was started; null while none runs.
	Started *time.Time `json:"started"`
	// LastFailure is how the role last ended by itself on this node; null: never.
	LastFailure *Failure `json:"last_failure"`
	// Tier is how far its sandbox is open: "confined", "granted" or "privileged".
	Tier string `json:"tier"`
	// InSplit is what becomes of it while the node is Split: "continue", "stop" or "told".
	InSplit string `json:"in_split"`
	// RolledBack says which version of the plugin did not come to work on the node, so that the one before runs; null: the catalog's does.
	RolledBack *RolledBack `json:"rolled_back"`
	// Debug says that its process was started by hand: it is in no sandbox, and Digest is not of what it executes.
	Debug bool `json:"debug"`
}

// RolledBack is a version of a plugin that did not come to work on a node.
type RolledBack struct {
	Version string     `json:"version"`
	Digest  string     `json:"digest"`
	Reason  string     `json:"reason"`
	Time    *time.Time `json:"time"`
}

// Endpoint is an address that an instance serves.
type Endpoint struct {
	Name    string `json:"name"`
	Address string `json:"address"`
}

// Failure is one end of a role that nobody asked for.
type Failure struct {
	Time  *time.Time `json:"time"`
	Cause string     `json:"cause"`
	// ExitCode is null and Signal empty where the process did not end so.
	ExitCode *int32 `json:"exit_code"`
	// Signal is a name, such as "SIGKILL".
	Signal string `json:"signal"`
	// Lines are the last that the process wrote to its standard error, the oldest first.
	Lines []string `json:"lines"`
	// Failures is how many there were in the window that ends with this one, Budget how many are allowed in it.
	Failures      uint32  `json:"failures"`
	Budget        uint32  `json:"budget"`
	WindowSeconds float64 `json:"window_seconds"`
	InstanceID    string  `json:"instance_id"`
	// OutOfMemory says that the kernel ended it because it used more memory than it may.
	OutOfMemory bool `json:"out_of_memory"`
}

// NewRole makes the document of a role on a node.
func NewRole(i *clusterv1.InstanceStatus) Role {
	return Role{
		Role:                    i.GetRole(),
		State:                   State(i.GetState()),
		Reason:                  i.GetReason(),
		PID:                     i.GetPid(),
		Restarts:                i.GetRestarts(),
		Endpoints:               newEndpoints(i.GetEndpoints()),
		Values:                  dictionary(i.GetValues()),
		InstanceID:              i.GetInstanceId(),
		Plugin:                  i.GetPlugin(),
		PluginVersion:           i.GetPluginVersion(),
		Digest:                  i.GetDigest(),
		ConfigurationGeneration: i.GetConfigurationGeneration(),
		Since:                   moment(i.GetSince()),
		NextTry:                 moment(i.GetNextTry()),
		Started:                 moment(i.GetStarted()),
		LastFailure:             NewFailure(i.GetLastFailure()),
		Tier:                    Kind(i.GetTier()),
		InSplit:                 InSplit(i.GetInSplit()),
		RolledBack:              newRolledBack(i.GetRolledBack()),
		Debug:                   i.GetDebug(),
	}
}

func newRolledBack(r *clusterv1.RolledBack) *RolledBack {
	if r == nil {
		return nil
	}
	return &RolledBack{Version: r.GetVersion(), Digest: r.GetDigest(), Reason: r.GetReason(), Time: moment(r.GetTime())}
}

// text is what happened, in one sentence without its full stop.
func (r *RolledBack) text() string {
	text := "version " + r.Version + " did not come to work here"
	if r.Reason != "" {
		text += ": " + r.Reason
	}
	return strings.TrimSuffix(text, ".")
}

// NewFailure makes the document of a role's failure; nil for nil.
func NewFailure(f *clusterv1.Failure) *Failure {
	if f == nil {
		return nil
	}
	return &Failure{
		Time:          moment(f.GetTime()),
		Cause:         f.GetCause(),
		ExitCode:      f.ExitCode,
		Signal:        f.GetSignal(),
		Lines:         list(f.GetLines()),
		Failures:      f.GetFailures(),
		Budget:        f.GetBudget(),
		WindowSeconds: f.GetWindow().AsDuration().Seconds(),
		InstanceID:    f.GetInstanceId(),
		OutOfMemory:   f.GetOutOfMemory(),
	}
}

func newRoles(instances []*clusterv1.InstanceStatus) []Role {
	roles := []Role{}
	for _, instance := range instances {
		roles = append(roles, NewRole(instance))
	}
	return roles
}

func newEndpoints(from []*rolev1.Endpoint) []Endpoint {
	endpoints := []Endpoint{}
	for _, endpoint := range from {
		endpoints = append(endpoints, Endpoint{Name: endpoint.GetName(), Address: endpoint.GetAddress()})
	}
	return endpoints
}

// How says how the process of a failure ended, for people; empty where it is not known.
func (f *Failure) How() string {
	how := ""
	switch {
	case f.Signal != "":
		how = "signal " + f.Signal
	case f.ExitCode != nil:
		how = "exit code " + strconv.Itoa(int(*f.ExitCode))
	}
	if f.OutOfMemory {
		return strings.TrimSuffix("out of memory, "+how, ", ")
	}
	return how
}

// budget says how much of the crash budget is used; empty where it is not known.
func (f *Failure) budget() string {
	if f.Failures == 0 {
		return ""
	}
	window := time.Duration(f.WindowSeconds * float64(time.Second))
	return fmt.Sprintf("%d failures in %s, %d are allowed", f.Failures, short(window), f.Budget)
}

// Text is a failure in one sentence, without its full stop, and without the lines that the role wrote.
func (f *Failure) Text() string {
	text := f.Cause
	if text == "" {
		text = "it ended by itself"
	}
	var more []string
	// A cause that is the end of the process says so itself.
	says := strings.Contains(text, "signal") || strings.Contains(text, "exit")
	switch how := f.How(); {
	case f.OutOfMemory && !strings.Contains(text, "memory") && says:
		more = append(more, "out of memory")
	case how != "" && !says:
		more = append(more, how)
	}
	if budget := f.budget(); budget != "" {
		more = append(more, budget)
	}
	if len(more) > 0 {
		text += " (" + strings.Join(more, "; ") + ")"
	}
	return Clean(text)
}

// failing says whether a role does not run because of its last failure.
func (r Role) failing() bool {
	return r.LastFailure != nil && (r.State == "Failed" || r.State == "Backoff")
}

func roleTable(w io.Writer, roles []Role, now time.Time) {
	row(w, "ROLE", "STATE", "PID", "RESTARTS", "SINCE", "TIER", "ENDPOINTS", "REASON")
	for _, role := range roles {
		roleRow(w, role, now)
	}
	for _, role := range roles {
		if role.failing() {
			role.failureTable(w, now)
		}
		if role.RolledBack != nil {
			_, _ = fmt.Fprintf(w, "\nRole %s runs version %s: %s\n", Clean(role.Role), Clean(role.PluginVersion), Clean(role.RolledBack.text()))
		}
	}
}

// failureTable says why a role does not run: its cause and the last lines that it wrote.
func (r Role) failureTable(w io.Writer, now time.Time) {
	when := ""
	if r.LastFailure.Time != nil {
		when = " " + age(r.LastFailure.Time, now) + " ago"
	}
	_, _ = fmt.Fprintf(w, "\nRole %s failed%s: %s\n", Clean(r.Role), when, r.LastFailure.Text())
	lines(w, "  | ", r.LastFailure.Lines)
}

// lines writes what a role wrote, marked as such.
func lines(w io.Writer, mark string, of []string) {
	for _, line := range of {
		_, _ = fmt.Fprintln(w, mark+Clean(line))
	}
}

func roleRow(w io.Writer, r Role, now time.Time) {
	pid := ""
	if r.PID != 0 {
		pid = strconv.FormatInt(r.PID, 10)
	}
	row(w, r.Role, r.State, pid, strconv.FormatUint(uint64(r.Restarts), 10), age(r.Since, now), r.Tier, endpoints(r.Endpoints), r.Reason)
}

func endpoints(of []Endpoint) string {
	var texts []string
	for _, endpoint := range of {
		texts = append(texts, endpoint.Name+"="+endpoint.Address)
	}
	return strings.Join(texts, " ")
}
