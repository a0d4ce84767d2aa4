package output

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/reeveproject/reeve/proto/problem"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// NodeDescription is the document of `reeve describe node`: what the node says of itself, and what the cluster knows of it.
type NodeDescription struct {
	ID string `json:"id"`
	// Self is null if the node did not answer.
	Self *Status `json:"self"`
	// Cluster is null if no curator answered. The values in its configurations are left out, unless they were asked for.
	Cluster *Node `json:"cluster"`
	// Events are the last ones of the node, the oldest first.
	Events []*nodev1.Event `json:"events"`
	// Missing is what could not be read.
	Missing []Missing `json:"missing"`
}

// RoleDescription is the document of `reeve describe role`.
type RoleDescription struct {
	NodeID string `json:"node_id"`
	Role   string `json:"role"`
	// Instance is what the node reports; null: nothing.
	Instance *clusterv1.InstanceStatus `json:"instance"`
	// Assignment is what the cluster wants; null: the role is not assigned, or no curator answered. The values in its configuration are left out,
	// unless they were asked for.
	Assignment *clusterv1.RoleAssignment `json:"assignment"`
	// Remit is what the role is and what it is granted, from the catalog; null: it is not there, or no curator answered.
	Remit *PluginRole `json:"remit"`
	// Events are the last ones that are about the role, the oldest first.
	Events []*nodev1.Event `json:"events"`
	// Missing is what could not be read.
	Missing []Missing `json:"missing"`
}

func (d NodeDescription) table(w io.Writer, now time.Time) {
	if d.Self != nil {
		d.Self.head(w, now)
		row(w, "API", d.Self.Node.APIAddress)
		row(w, "Version", d.Self.Node.Version)
		row(w, "Core started", ago(d.Self.Node.CoreStart, now))
		row(w, "Curators", strings.Join(d.Self.Cluster.Curators, ", "))
	} else {
		row(w, "Node", d.ID)
		if d.Cluster != nil {
			storageRows(w, d.Cluster.Storage, d.Cluster.Volume)
		}
	}
	if cluster := d.Cluster; cluster != nil {
		if d.Self == nil || cluster.Problem != problem.Join(d.Self.Problems) {
			cluster.problemRow(w)
		}
		cluster.rows(w, now, d.Self != nil)
		row(w, "Labels", strings.TrimSpace(parameters(d.Cluster.Labels)))
		row(w, "Assigned", strings.Join(RoleNames(d.Cluster.Assigned), ", "))
		row(w, "Generation", number(d.Cluster.Generation))
		row(w, "Created", ago(d.Cluster.Created, now))
		row(w, "Reported", ago(d.Cluster.Reported, now))
	}
	missingParts(w, "\nNot enforced of sandboxes:", d.notEnforced())
	if d.Self != nil && d.Self.Store != nil {
		_, _ = fmt.Fprintln(w, "\nStore:")
		storeRows(w, d.Self.Store)
	}
	roles := d.roles()
	_, _ = fmt.Fprintln(w, "\nRoles:")
	if len(roles) == 0 {
		_, _ = fmt.Fprintln(w, "none")
	} else {
		roleTable(w, roles, now)
	}
	tail(w, d.Events, d.Missing, now)
}

// notEnforced is what the node cannot enforce of sandboxes, as it says itself or as the cluster last heard.
func (d NodeDescription) notEnforced() []*clusterv1.Missing {
	switch {
	case d.Self != nil:
		return d.Self.Node.Missing
	case d.Cluster != nil:
		return d.Cluster.Missing
	default:
		return nil
	}
}

func (d NodeDescription) roles() []*clusterv1.InstanceStatus {
	switch {
	case d.Self != nil:
		return d.Self.Roles
	case d.Cluster != nil:
		return d.Cluster.Roles
	default:
		return nil
	}
}

func (d RoleDescription) table(w io.Writer, now time.Time) {
	row(w, "Role", d.Role)
	row(w, "Node", d.NodeID)
	if d.Remit != nil {
		row(w, "Summary", d.Remit.Summary)
	}
	d.instanceRows(w, now)
	if d.Remit != nil {
		row(w, "Requires", strings.Join(d.Remit.Requires, ", "))
		row(w, "Provides", strings.Join(d.Remit.Provides, ", "))
		row(w, "Consensus user", d.Remit.ConsensusUser)
		row(w, "Grants", strings.Join(GrantTexts(d.Remit.Grants), "; "))
		if !none(d.Remit.Withheld) {
			row(w, "Refused", strings.Join(ExplainGrants(d.Remit.Withheld), "; "))
		}
	}
	if d.Assignment != nil {
		row(w, "Assigned", fmt.Sprintf("yes, configuration generation %d", d.Assignment.GetGeneration()))
		row(w, "Configuration", d.Assignment.GetConfiguration())
	}
	if values := d.Instance.GetValues(); len(values) > 0 {
		_, _ = fmt.Fprintln(w, "\nPublished values:")
		for _, name := range slices.Sorted(maps.Keys(values)) {
			row(w, "  "+name, values[name])
		}
	}
	if failure := d.Instance.GetLastFailure(); failure != nil {
		failureSection(w, failure, now)
	}
	tail(w, d.Events, d.Missing, now)
}

func (d RoleDescription) instanceRows(w io.Writer, now time.Time) {
	i := d.Instance
	if i == nil {
		row(w, "State", "the node reports nothing of it")
		return
	}
	state := State(i.GetState())
	if since := moment(i.GetSince()); since != nil {
		state += ", for " + age(since, now)
	}
	row(w, "State", state)
	row(w, "Reason", i.GetReason())
	if next := moment(i.GetNextTry()); next != nil {
		row(w, "Next try", next.Format(time.RFC3339))
	}
	row(w, "Instance", i.GetInstanceId())
	row(w, "Process", processID(i))
	row(w, "Started", ago(moment(i.GetStarted()), now))
	row(w, "Restarts", number(i.GetRestarts()))
	row(w, "Plugin", strings.TrimSpace(i.GetPlugin()+" "+i.GetPluginVersion()))
	row(w, "Digest", i.GetDigest())
	if back := i.GetRolledBack(); back != nil {
		row(w, "Rolled back", ago(moment(back.GetTime()), now)+": "+rolledBackText(back))
	}
	row(w, "Tier", Kind(i.GetTier()))
	row(w, "Endpoints", endpoints(i.GetEndpoints()))
}

func failureSection(w io.Writer, f *clusterv1.Failure, now time.Time) {
	_, _ = fmt.Fprintln(w, "\nLast failure:")
	row(w, "  When", ago(moment(f.GetTime()), now))
	row(w, "  Cause", f.GetCause())
	row(w, "  Ended with", howEnded(f))
	row(w, "  Crash budget", crashBudget(f))
	row(w, "  Instance", f.GetInstanceId())
	if len(f.GetLines()) > 0 {
		_, _ = fmt.Fprintln(w, "  It last wrote:")
		lines(w, "  | ", f.GetLines())
	}
}

// tail is how every description ends.
func tail(w io.Writer, events []*nodev1.Event, missing []Missing, now time.Time) {
	_, _ = fmt.Fprintln(w, "\nEvents:")
	if len(events) == 0 {
		_, _ = fmt.Fprintln(w, "none")
	} else {
		eventTable(w, events, now)
	}
	if len(missing) > 0 {
		_, _ = fmt.Fprintln(w, "\nCould not be read:")
		missingRows(w, missing)
	}
}
