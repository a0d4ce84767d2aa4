package output

import (
	"fmt"
	"io"
	"strings"
	"time"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// NodeChange is the document of the commands that change a node: `reeve node approve`, `accept`, `label`, `drain`, `decommission` and `delete`.
type NodeChange struct {
	NodeID string `json:"node_id"`
	// Action is "approve", "accept", "label", "drain", "undrain", "decommission" or "delete".
	Action string `json:"action"`
	// DryRun says that nothing was changed: it is what would have been done.
	DryRun bool `json:"dry_run"`
	// State is the state of the node then.
	State   string            `json:"state"`
	Roles   []string          `json:"roles"`
	Labels  map[string]string `json:"labels"`
	Drained bool              `json:"drained"`
	// Bypassed is what would have forbidden it, a sentence each.
	Bypassed []string `json:"bypassed"`
	// Waited says whether the command waited for the change.
	Waited bool `json:"waited"`
}

// NewNodeChange makes the document of a change of a node, with its record as it is then.
func NewNodeChange(action string, record *clusterv1.NodeRecord, dryRun bool) NodeChange {
	return NodeChange{
		NodeID: record.GetId(), Action: action, DryRun: dryRun, State: State(record.GetState()), Roles: RoleNames(record.GetRoles()), Labels: record.GetLabels(),
		Drained: record.GetDrained(), Bypassed: []string{},
	}
}

func (c NodeChange) table(w io.Writer, _ time.Time) {
	for _, bypassed := range c.Bypassed {
		line(w, "Bypassed: ", bypassed)
	}
	if c.DryRun {
		line(w, "Node ", c.NodeID, " ", c.done(), ". Nothing was changed (--dry-run).")
		return
	}
	line(w, "Node ", c.NodeID, " ", c.done(), ".")
}

// done is what became of the node, or would.
func (c NodeChange) done() string {
	is, runs, loses := "is", "runs", "is drained: it stops"
	if c.DryRun {
		is, runs, loses = "would be", "would run", "would be drained: it would stop"
	}
	switch c.Action {
	case "approve":
		if c.DryRun {
			return "would be approved" + c.with()
		}
		return "is " + c.State + c.with()
	case "accept":
		return is + " accepted when it next starts, or calls"
	case "label":
		if c.DryRun {
			return "would have " + c.labels()
		}
		return "has " + c.labels()
	case "drain":
		return loses + " its roles, except those that the cluster itself runs on"
	case "undrain":
		return runs + " its roles again"
	case "decommission":
		switch {
		case c.DryRun:
			return "would be decommissioned"
		case c.State == "Decommissioned":
			return "is Decommissioned: it wipes its secrets, and comes back only with a new ticket"
		}
		return "is being decommissioned: its roles end, its member leaves the store, then it wipes its secrets"
	}
	if c.DryRun {
		return "would be deleted"
	}
	return "is deleted: what it shows is refused from now on, and it comes back only with a new ticket"
}

func (c NodeChange) with() string {
	roles := "no roles"
	if len(c.Roles) > 0 {
		roles = "roles " + strings.Join(c.Roles, ", ")
	}
	return ", with " + roles + " and " + c.labels()
}

func (c NodeChange) labels() string {
	if len(c.Labels) == 0 {
		return "no labels"
	}
	return "labels " + labels(c.Labels)
}

// Certificates is the document of `reeve cert list`: what the cluster has issued and is in use, and where the rotation of the CA stands.
type Certificates struct {
	*clusterv1.ListCertificatesResponse
}

func (c Certificates) table(w io.Writer, now time.Time) {
	row(w, "KIND", "SUBJECT", "NODE", "ENDS IN", "USE", "FINGERPRINT")
	for _, one := range c.GetCertificates() {
		left := ""
		switch ends := moment(one.GetNotAfter()); {
		case ends == nil:
		case ends.Sub(now) > endless:
			left = "never"
		case now.Before(*ends):
			left = short(ends.Sub(now))
		default:
			left = "over"
		}
		row(w, Kind(one.GetKind()), one.GetSubject(), one.GetNodeId(), left, one.GetUse(), one.GetFingerprint())
	}
	for _, text := range []string{phaseText(Kind(c.GetPhase())), storeCAText(c.GetStoreCaStep())} {
		if text != "" {
			_, _ = fmt.Fprintln(w)
			line(w, text)
		}
	}
}

func storeCAText(step string) string {
	if step == "" {
		return ""
	}
	return "The CA of the store's members is being replaced: " + step + "."
}

// endless is from how much time on a certificate has no end: 9999-12-31 is how it says that.
const endless = 200 * 365 * 24 * time.Hour

// phaseText says where the rotation of the CA stands and what is next; empty: nothing is under way.
func phaseText(phase string) string {
	switch phase {
	case "prepared":
		return "A new CA is trusted besides, and does not sign yet: `reeve cert rotate activate` is the next step."
	case "active":
		return "The new CA signs, and the old one is still trusted: `reeve cert rotate retire` is the next step."
	}
	return ""
}

// Rotation is what both rotations show of a step.
type Rotation struct {
	// Step is "prepare", "activate" or "retire".
	Step   string `json:"step"`
	DryRun bool   `json:"dry_run"`
	Forced bool   `json:"forced"`
	// Phase is where the rotation stands then: "steady", "prepared" or "active".
	Phase string `json:"phase"`
	// Waiting is who is not ready for the next step, and why not.
	Waiting []string `json:"waiting"`
	// LeftOut is who is left out by the step, and why.
	LeftOut []string `json:"left_out"`
}

// section says where the rotation stands, and who is not ready for the next step, which a command takes.
func (r Rotation) section(w io.Writer, stands, ready, command string) {
	if r.DryRun {
		line(w, "With that step, ", stands, ". Nothing was changed (--dry-run).")
	} else {
		line(w, stands, ".")
	}
	if len(r.LeftOut) > 0 {
		line(w, "Left out by this step:")
		for _, each := range r.LeftOut {
			row(w, "  "+each)
		}
		line(w, "Which of them does not know the new CA has to be deleted (`reeve node delete NODE`) and added anew with a new ticket.")
	}
	if next := map[string]string{"prepared": "activate", "active": "retire"}[r.Phase]; next != "" {
		nextStep(w, ready, command+" "+next, r.Waiting)
	}
}

// nextStep says whether the next step of a rotation can be taken.
func nextStep(w io.Writer, ready, command string, waiting []string) {
	if len(waiting) == 0 {
		line(w, ready, " is ready for the next step: `", command, "`.")
		return
	}
	line(w, "The next step, `", command, "`, waits for:")
	for _, each := range waiting {
		row(w, "  "+each)
	}
}

// CARotation is the document of `reeve cert rotate`.
type CARotation struct{ Rotation }

// NewCARotation makes the document of a step of the rotation.
func NewCARotation(step string, forced, dryRun bool, response *clusterv1.RotateCAResponse) CARotation {
	return CARotation{Rotation{Step: step, DryRun: dryRun, Forced: forced, Phase: Kind(response.GetPhase()), Waiting: response.GetWaiting(), LeftOut: response.GetLeftOut()}}
}

func (r CARotation) table(w io.Writer, _ time.Time) {
	r.section(w, map[string]string{
		"prepared": "a new CA is trusted besides the old one, and does not sign yet", "active": "the new CA signs, and the old one is still trusted",
		"steady": "there is one CA, which signs; what the old one signed is refused",
	}[r.Phase], "every node", "reeve cert rotate")
}
