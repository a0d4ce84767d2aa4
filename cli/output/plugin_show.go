package output

import (
	"fmt"
	"io"
	"strings"
	"time"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// PluginShown is the document of `reeve plugin show`: what the catalog holds of a plugin, and where it runs.
type PluginShown struct {
	Plugin
	// Nodes are those that have roles of it.
	Nodes []PluginNode `json:"nodes"`
}

// PluginNode is a role of a plugin on a node.
type PluginNode struct {
	NodeID string `json:"node_id"`
	Role   string `json:"role"`
	// State is that of the instance; empty: the node has not reported it.
	State string `json:"state"`
	// Version is that of the executable that runs there.
	Version string `json:"version"`
	// RolledBack says which version did not work there; null: the catalog's does.
	RolledBack *clusterv1.RolledBack `json:"rolled_back"`
}

func (p PluginShown) table(w io.Writer, now time.Time) {
	row(w, "Plugin", p.GetName())
	version := p.GetVersion()
	if version == "" {
		version = "none that was approved"
	}
	row(w, "Version", version)
	row(w, "Added", ago(moment(p.GetAdded()), now))
	row(w, "Built in", yesNo(p.GetGenesis()))
	row(w, "Generation", number(p.GetGeneration()))
	if p.Previous != nil {
		row(w, "Before", p.Previous.GetVersion())
	}
	digests(w, p.GetDigests())
	for _, role := range p.Roles {
		_, _ = fmt.Fprintf(w, "\nRole %s:\n", Clean(role.Role))
		row(w, "  Summary", role.Summary)
		row(w, "  Tier", role.Tier)
		row(w, "  Requires", strings.Join(role.Requires, ", "))
		row(w, "  Gives up", strings.Join(role.GivesUp, ", "))
		row(w, "  In Split", explainSplit(role.InSplit))
		row(w, "  Starts from cache", yesNo(role.StartsFromCache))
		row(w, "  Ends with core", yesNo(role.EndsWithCore))
		row(w, "  Stop grace", StopGrace(role.StopGraceSeconds))
	}
	if len(p.Roles) > 0 {
		_, _ = fmt.Fprintln(w)
		granted(w, p.Roles, "is")
	}
	if p.Waiting != nil {
		_, _ = fmt.Fprintf(w, "\nVersion %s waits for the owner since %s:\n", Clean(p.Waiting.GetVersion()), age(moment(p.Waiting.GetAdded()), now))
		digests(w, p.Waiting.GetDigests())
		asked(w, p.Waiting.New)
	}
	p.reports(w, now)
	_, _ = fmt.Fprintln(w, "\nNodes:")
	if len(p.Nodes) == 0 {
		_, _ = fmt.Fprintln(w, "none")
		return
	}
	row(w, "NODE", "ROLE", "STATE", "VERSION", "REASON")
	for _, node := range p.Nodes {
		reason := ""
		if node.RolledBack != nil {
			reason = rolledBackText(node.RolledBack)
		}
		row(w, node.NodeID, node.Role, node.State, node.Version, reason)
	}
}

// PluginChange is the document of the commands that change what the catalog holds of a plugin. It is the plugin as it is then; with "remove", as it was.
type PluginChange struct {
	Plugin
	// Action is "add", "approve", "grant", "withdraw" or "remove".
	Action string `json:"action"`
	// DryRun says that the catalog was not changed: it is what would be in it.
	DryRun bool `json:"dry_run"`
	// Waits says, with "add", that what was added waits for approval.
	Waits bool `json:"waits"`
	// Wiped says, with "remove", that what the plugin kept is removed, too.
	Wiped bool `json:"wiped"`
	// Nodes are those from which roles were taken with "remove".
	Nodes []string `json:"nodes"`
}

// table of what was changed says what is granted now: the owner's call was the approval, so the owner is to see it.
func (p PluginChange) table(w io.Writer, _ time.Time) {
	is := "is"
	if p.DryRun {
		is = "would be"
	}
	switch waits := p.Waiting; {
	case p.Action == "remove":
		p.removed(w, is)
	case p.Waits && waits != nil:
		runs := "nothing of it runs before"
		if p.GetVersion() != "" {
			runs = "version " + Clean(p.GetVersion()) + " runs on"
		}
		verb := "waits"
		if p.DryRun {
			verb = "would wait"
		}
		_, _ = fmt.Fprintf(w, "Plugin %s %s %s for approval: %s.\n", Clean(p.GetName()), Clean(waits.GetVersion()), verb, runs)
		digests(w, waits.GetDigests())
		asked(w, waits.New)
	default:
		_, _ = fmt.Fprintf(w, "Plugin %s %s %s in the catalog.\n", Clean(p.GetName()), Clean(p.GetVersion()), is)
		digests(w, p.GetDigests())
		granted(w, p.Roles, is)
	}
	if p.DryRun {
		_, _ = fmt.Fprintln(w, "The catalog was not changed (--dry-run).")
	}
}

func (p PluginChange) removed(w io.Writer, is string) {
	_, _ = fmt.Fprintf(w, "Plugin %s %s %s removed from the catalog, with its grants and ConsensusUsers.\n", Clean(p.GetName()), Clean(p.GetVersion()), is)
	if len(p.Nodes) > 0 {
		are := "were"
		if p.DryRun {
			are = "would be"
		}
		_, _ = fmt.Fprintf(w, "Its roles %s taken from %s.\n", are, Clean(strings.Join(p.Nodes, ", ")))
	}
	if p.Wiped {
		_, _ = fmt.Fprintf(w, "What it kept %s removed, too.\n", is)
	} else {
		_, _ = fmt.Fprintln(w, "What it kept stays: in the store, and in its directories on the nodes.")
	}
}

func explainSplit(behaviour string) string {
	return behaviour + map[string]string{
		"continue": " (it goes on, with the store)",
		"stop":     " (it is stopped until the node is Home again)",
		"told":     " (it goes on without the store, and is told)",
	}[behaviour]
}
