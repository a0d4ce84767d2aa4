package output

import (
	"fmt"
	"io"
	"strings"
	"time"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// Policy is the document of `reeve policy show`: what the owner demands of all nodes.
type Policy struct {
	*clusterv1.ClusterPolicy
	// Nodes are those that cannot enforce every part of a sandbox.
	Nodes []PolicyNode `json:"nodes"`
}

// PolicyNode is a node that cannot enforce every part of a sandbox.
type PolicyNode struct {
	NodeID string `json:"node_id"`
	// Missing are the names of those parts.
	Missing []string `json:"missing"`
}

// PolicyChange is the document of `reeve policy set`.
type PolicyChange struct {
	Policy
	// DryRun says that nothing was changed: it is what would have been done.
	DryRun bool `json:"dry_run"`
}

// NewPolicy makes the document of a policy. nodes are all of the cluster.
func NewPolicy(policy *clusterv1.ClusterPolicy, nodes []*clusterv1.Node) Policy {
	document := Policy{ClusterPolicy: policy, Nodes: []PolicyNode{}}
	for _, node := range nodes {
		if len(node.GetStatus().GetMissing()) == 0 {
			continue
		}
		lacks := PolicyNode{NodeID: node.GetRecord().GetId(), Missing: []string{}}
		for _, part := range node.GetStatus().GetMissing() {
			lacks.Missing = append(lacks.Missing, part.GetName())
		}
		document.Nodes = append(document.Nodes, lacks)
	}
	return document
}

func (p Policy) table(w io.Writer, _ time.Time) {
	text := "best-effort: roles run in as much of a sandbox as their node can enforce, and its status says what is missing."
	if p.GetIsolation() == clusterv1.IsolationPolicy_ISOLATION_POLICY_REQUIRED {
		text = "required: roles run only where their whole sandbox is enforced, apart from those that provide the store and the cluster API."
	}
	row(w, "Isolation", text)
	sources := "all: a locked node takes the key of its volume from every source that it has."
	if len(p.GetCukSources()) > 0 {
		sources = strings.Join(p.GetCukSources(), ", ") + ": a locked node takes the key of its volume from nowhere else."
	}
	row(w, "CUK sources", sources)
	text = "optional: plugins need no report of the conformance suite."
	if p.GetConformance() == clusterv1.ConformancePolicy_CONFORMANCE_POLICY_REQUIRED {
		text = "required: a plugin that has no report of the conformance suite which says that it conforms is not added, approved or run."
	}
	row(w, "Conformance", text)
	recipient := "none: snapshots of the store cannot be sealed (`reeve policy set recovery-recipient=age1…`)."
	if p.GetRecoveryRecipient() != "" {
		recipient = p.GetRecoveryRecipient() + ": snapshots of the store are sealed to this recovery key."
	}
	row(w, "Recovery recipient", recipient)
	snapshots := "off: snapshots of the store are taken when somebody asks for one."
	if schedule := p.GetSnapshots(); schedule != nil {
		snapshots = fmt.Sprintf("one is due every %s; each node keeps %d (`reeve store snapshot list`).", time.Duration(schedule.GetIntervalSeconds())*time.Second, schedule.GetKeep())
	}
	row(w, "Snapshots", snapshots)
	for _, node := range p.Nodes {
		_, _ = fmt.Fprintf(w, "Node %s cannot enforce %s.\n", Clean(node.NodeID), Clean(strings.Join(node.Missing, ", ")))
	}
}

func (p PolicyChange) table(w io.Writer, now time.Time) {
	p.Policy.table(w, now)
	if p.DryRun {
		_, _ = fmt.Fprintln(w, "That would be the policy. Nothing was changed (--dry-run).")
	}
}
