package devcluster

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/eventually"
)

// Status is what `reeve status -o json` promises, as somebody reads it who has only the documentation.
type Status struct {
	Node struct {
		ID         string   `json:"id"`
		Addresses  []string `json:"addresses"`
		APIAddress string   `json:"api_address"`
		Isolation  string   `json:"isolation"`
		Volume     string   `json:"volume"`
		// LackingCapabilities are those that the core, as root, goes on without.
		LackingCapabilities []string `json:"lacking_capabilities"`
	} `json:"node"`
	Cluster struct {
		ID       string   `json:"id"`
		Curators []string `json:"curators"`
	} `json:"cluster"`
	Membership struct {
		State  string    `json:"state"`
		Reason string    `json:"reason"`
		Since  time.Time `json:"since"`
	} `json:"membership"`
	// Store is the local member of the store; nil: none runs.
	Store *Store `json:"store"`
	Roles []Role `json:"roles"`
	// Storage is the volume and what keeps its keys.
	Storage Storage `json:"storage"`
}

// Store is what a node says of its member of the store.
type Store struct {
	MemberID string `json:"member_id"`
	LeaderID string `json:"leader_id"`
	Quorum   bool   `json:"quorum"`
}

// Role is a role on the node.
type Role struct {
	Role       string `json:"role"`
	State      string `json:"state"`
	Reason     string `json:"reason"`
	PID        int    `json:"pid"`
	Restarts   int    `json:"restarts"`
	InstanceID string `json:"instance_id"`
	// Since is when it came into its state.
	Since time.Time `json:"since"`
	// InSplit is what becomes of the role while the node is Split: "continue", "stop" or "told".
	InSplit string `json:"in_split"`
	// PluginVersion and Digest are those of the executable.
	PluginVersion string            `json:"plugin_version"`
	Digest        string            `json:"digest"`
	Endpoints     []Endpoint        `json:"endpoints"`
	Values        map[string]string `json:"values"`
	// LastFailure is nil if the role never failed.
	LastFailure *Failure `json:"last_failure"`
	// Debug says that its process was started by hand.
	Debug bool `json:"debug"`
}

// Failure is how a role failed.
type Failure struct {
	Cause    string   `json:"cause"`
	ExitCode *int     `json:"exit_code"`
	Signal   string   `json:"signal"`
	Lines    []string `json:"lines"`
	Failures int      `json:"failures"`
	Budget   int      `json:"budget"`
	// InstanceID is that of the instance that failed.
	InstanceID string `json:"instance_id"`
}

// Endpoint is an address that an instance serves.
type Endpoint struct {
	Name    string `json:"name"`
	Address string `json:"address"`
}

// Role returns the role of a name; the zero Role if the node does not have it.
func (s Status) Role(name string) Role {
	for _, role := range s.Roles {
		if role.Role == name {
			return role
		}
	}
	return Role{}
}

// Up says whether the node is Home and these roles are Ready.
func (s Status) Up(roles ...string) bool {
	for _, role := range roles {
		if s.Role(role).State != "Ready" {
			return false
		}
	}
	return s.Membership.State == "Home"
}

// PIDs returns the process of each role that has one.
func (s Status) PIDs() map[string]int {
	pids := make(map[string]int)
	for _, role := range s.Roles {
		if role.PID != 0 {
			pids[role.Role] = role.PID
		}
	}
	return pids
}

// String is the status for people who look at a failed test.
func (s Status) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s (%s)", s.Node.ID, s.Membership.State, s.Membership.Reason)
	if s.Storage.Kind != "" {
		fmt.Fprintf(&text, "\n\tstorage %+v", s.Storage)
	}
	for _, role := range s.Roles {
		fmt.Fprintf(&text, "\n\t%s %s (%s) pid %d, restarts %d", role.Role, role.State, role.Reason, role.PID, role.Restarts)
	}
	return text.String()
}

// Endpoint returns the address of an endpoint; empty if there is none.
func (r Role) Endpoint(name string) string {
	for _, endpoint := range r.Endpoints {
		if endpoint.Name == name {
			return endpoint.Address
		}
	}
	return ""
}

// URL returns the endpoint "http" as the beginning of a URL, without a slash at its end; empty if there is none.
func (r Role) URL() string {
	address := r.Endpoint("http")
	if address != "" && !strings.Contains(address, "://") {
		address = "http://" + address
	}
	return strings.TrimSuffix(address, "/")
}

// Status returns the node's status.
func (c *Cluster) Status(t testing.TB) Status {
	t.Helper()
	status, err := ParseStatus(c.MustReeve(t, "status", "-o", "json").Stdout)
	if err != nil {
		t.Fatal(err)
	}
	return status
}

// ParseStatus reads what `reeve status -o json` prints.
func ParseStatus(document string) (Status, error) {
	var status Status
	if err := json.Unmarshal([]byte(document), &status); err != nil {
		return status, fmt.Errorf("reeve status -o json: %w\n%s", err, document)
	}
	return status, nil
}

// watchAgain is how long a test waits at least before it starts another watch: one ends at once while no node answers.
const watchAgain = 200 * time.Millisecond

// Await waits for a status that is as it should be, and returns it. It watches the node with one process: to ask again and again would start one each time, and would
// starve what it looks at.
func (c *Cluster) Await(t testing.TB, timeout time.Duration, what string, ok func(Status) bool) Status {
	t.Helper()
	var (
		status Status
		line   string
		began  time.Time
		watch  *Running
	)
	start := func() { watch, began = c.Start(t, "status", "--watch", "-o", "json"), time.Now() }
	start()
	defer func() { watch.kill() }()
	eventually.True(t, timeout, what, func() (bool, string) {
		select {
		case <-watch.Done():
			said := watch.result.String()
			if time.Since(began) > watchAgain {
				start()
				line = ""
			}
			return false, said
		default:
		}
		if newest := watch.stdout.lastLine(); newest != line {
			var err error
			if status, err = ParseStatus(newest); err != nil {
				return false, err.Error()
			}
			line = newest
		}
		if line == "" {
			return false, "the node has not answered yet"
		}
		return ok(status), status.String()
	})
	return status
}

// AwaitUp waits until the node is Home and these roles are Ready.
func (c *Cluster) AwaitUp(t testing.TB, timeout time.Duration, roles ...string) Status {
	t.Helper()
	return c.Await(t, timeout, "the node Home and Ready: "+strings.Join(roles, ", "), func(s Status) bool { return s.Up(roles...) })
}
