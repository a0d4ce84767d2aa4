package output

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/reeveproject/reeve/cli/redact"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// RoleChange is the document of `reeve node role add`, `remove` and `restart`.
type RoleChange struct {
	NodeID string `json:"node_id"`
	Role   string `json:"role"`
	// Action is "add", "remove", "restart" or "debug".
	Action string `json:"action"`
	// DryRun says that nothing was changed: it is what would have been done.
	DryRun bool `json:"dry_run"`
	// Generation is that of the assignment; 0 if it was removed, and after a restart.
	Generation uint64 `json:"generation"`
	// FormerInstance is the instance that a restart stopped, or that gave way to a process that is debugged; empty: none ran, or it was neither.
	FormerInstance string `json:"former_instance"`
	// Waited says whether the command waited for the change.
	Waited bool `json:"waited"`
	// Wiped says that the node removes what the role kept there.
	Wiped bool `json:"wiped"`
	// Required are the roles that the node was given before it, since the role requires them.
	Required []string `json:"required"`
	// Configuration is what would change in the role's configuration if it were added; empty: nothing, or it is no dry run.
	Configuration []redact.Change `json:"configuration"`
	// Instance is what the node reports of the role; null if it was not waited for or is gone.
	Instance *clusterv1.InstanceStatus `json:"instance"`
}

func (c RoleChange) table(w io.Writer, now time.Time) {
	switch {
	case c.DryRun:
		_, _ = fmt.Fprintf(w, "%s Nothing was changed (--dry-run).\n", c.wouldBe())
		if len(c.Configuration) > 0 {
			row(w, "CONFIGURATION", "BEFORE", "AFTER")
		}
		for _, change := range c.Configuration {
			row(w, change.Path, change.Before, change.After)
		}
	case !c.Waited && c.Action == "restart":
		_, _ = fmt.Fprintf(w, "Node %s restarts role %s.\n", c.NodeID, c.Role)
	case !c.Waited && c.Action == "debug":
		_, _ = fmt.Fprintf(w, "Node %s has the process take the place of its instance of role %s.\n", c.NodeID, c.Role)
	case !c.Waited:
		_, _ = fmt.Fprintf(w, "The cluster has taken the change of role %s on %s; the node follows.%s\n", c.Role, c.NodeID,
			c.required(" It also gets what the role requires: %s.")+c.wiped(" It removes what the role kept there, too."))
	case c.Instance == nil:
		_, _ = fmt.Fprintf(w, "Role %s is gone from %s.%s\n", c.Role, c.NodeID, c.wiped(" What it kept there is removed."))
	default:
		row(w, roleHead...)
		roleRow(w, c.Instance, now)
	}
}

// required is text with the roles that the role required, where the node was given any.
func (c RoleChange) required(text string) string {
	if len(c.Required) == 0 {
		return ""
	}
	return fmt.Sprintf(text, Clean(strings.Join(c.Required, ", ")))
}

// wiped is text where the data of the role is removed.
func (c RoleChange) wiped(text string) string {
	if !c.Wiped {
		return ""
	}
	return text
}

func (c RoleChange) wouldBe() string {
	switch c.Action {
	case "add":
		return fmt.Sprintf("Role %s would be given to node %s, with configuration generation %d.%s", c.Role, c.NodeID, c.Generation, c.required(" So would be what it requires: %s."))
	case "remove":
		return fmt.Sprintf("Role %s would be taken from node %s, and its instance stopped.%s", c.Role, c.NodeID, c.wiped(" What it kept there would be removed."))
	case "debug":
		return fmt.Sprintf("The process would take the place of the instance of role %s on node %s.", c.Role, c.NodeID)
	}
	if c.FormerInstance == "" {
		return fmt.Sprintf("Role %s would be started on node %s; no instance of it runs.", c.Role, c.NodeID)
	}
	return fmt.Sprintf("Role %s would be restarted on node %s: instance %s would be stopped.", c.Role, c.NodeID, Clean(c.FormerInstance))
}

// Down is the document of `reeve dev down`.
type Down struct {
	Directory string `json:"directory"`
	// DryRun says that nothing was stopped: it is what would have been.
	DryRun bool `json:"dry_run"`
	// Stopped is the process ID of the reeved that was stopped; 0 if none ran.
	Stopped int `json:"stopped"`
	// Reaped says whether roles of a core that had died were looked for and stopped.
	Reaped bool `json:"reaped"`
	// Roles are those that the node said it runs.
	Roles []string `json:"roles"`
	// Nodes are the other nodes of the directory, the second one first.
	Nodes []Down `json:"nodes"`
}

func (d Down) table(w io.Writer, now time.Time) {
	d.self(w)
	for _, node := range d.Nodes {
		node.table(w, now)
	}
}

// self says what was done with one node.
func (d Down) self(w io.Writer) {
	if d.DryRun {
		switch {
		case d.Stopped != 0:
			_, _ = fmt.Fprintf(w, "The node in %s would be stopped: reeved (process %d) and its roles (%s).", d.Directory, d.Stopped, orNone(d.Roles))
		case d.Reaped:
			_, _ = fmt.Fprintf(w, "No node runs in %s; roles that a dead one may have left would be looked for and stopped.", d.Directory)
		default:
			_, _ = fmt.Fprintf(w, "No node runs in %s: there is nothing to stop.", d.Directory)
		}
		_, _ = fmt.Fprintln(w, " Nothing was changed (--dry-run).")
		return
	}
	switch {
	case d.Stopped != 0:
		_, _ = fmt.Fprintf(w, "Stopped the node in %s.\n", d.Directory)
	case d.Reaped:
		_, _ = fmt.Fprintf(w, "No node runs in %s; roles that a dead one may have left were looked for and stopped.\n", d.Directory)
	default:
		_, _ = fmt.Fprintf(w, "No node runs in %s.\n", d.Directory)
	}
}

// Waited is the document of `reeve wait`.
type Waited struct {
	NodeID string `json:"node_id"`
	// Conditions are those that were waited for, as they were given.
	Conditions []string `json:"conditions"`
	// Seconds is how long it took.
	Seconds float64 `json:"seconds"`
	// State is the state that was reached, one sentence for each condition.
	State []string `json:"state"`
}

func (d Waited) table(w io.Writer, _ time.Time) {
	for _, state := range d.State {
		_, _ = fmt.Fprintf(w, "On node %s %s.\n", d.NodeID, Clean(state))
	}
}
