package howto_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/lab"
)

// TestMoveTheControlPlane follows the page "Move the control plane": from the first node of a cluster to the second one, and from there to three.
func TestMoveTheControlPlane(t *testing.T) {
	r := newReader(t, "docs/how-to/move-the-control-plane.md")
	a, b, c, d := r.lab.Machine(t, "a", "192.0.2.10"), r.lab.Machine(t, "b", "192.0.2.20"), r.lab.Machine(t, "c", "192.0.2.30"), r.lab.Machine(t, "d", "192.0.2.40")
	r.firstNode(a)
	r.join("", b, c, d)
	r.calls("reeve-a", a)
	r.calls("reeve-b", b)
	// Asked for now: a node that was decommissioned has ended, and cannot be asked.
	first := r.id(a)

	r.events["what-is-refused"] = func() {
		// The control plane is on b alone now.
		id := r.id(b)
		r.refuses("reeve node role remove "+id+" consensus", "role \"curator\" … requires \"reeve.consensus.v1\"")
		r.refuses("reeve node role remove "+id+" curator", "… is the last of the cluster with a role that provides …")
		if roles := r.controls(first); len(roles) > 0 {
			t.Errorf("the first node still has %v", roles)
		}
	}
	r.events["one-node-and-two"] = func() {
		if state := r.state(first); state != "Decommissioned" {
			t.Errorf("the first node is %s", state)
		}
		// What the page begins with here is a cluster of one: that of b, which c and d are to join.
		r.calls("reeve-a", b)
		r.calls("reeve-b", c)
		r.calls("reeve-c", d)
		r.names["192.0.2.20"] = func() string { return c.Address }
		r.names["192.0.2.30"] = func() string { return d.Address }
	}
	r.follow()
	// The three can do without one.
	b.PowerOff(t)
	eventually.True(t, patience, "the cluster goes on without one of three", func() (bool, string) {
		result := r.desk.Run(t, "reeve node label "+r.names["reeve-c"]()+" moved=yes")
		return result.Code == 0, result.String()
	})
}

// refuses checks that a command is refused with what the page says.
func (r *reader) refuses(command, text string) {
	r.t.Helper()
	result := r.desk.Run(r.t, command)
	if result.Code == 0 {
		r.t.Errorf("it is not refused: %s", result)
	}
	r.says(text, result.Terminal)
}

// listed is a node as `reeve node list -o json` shows it.
type listed struct {
	ID       string `json:"id"`
	State    string `json:"state"`
	Healthy  bool   `json:"healthy"`
	Problem  string `json:"problem"`
	Assigned []struct {
		Role string `json:"role"`
	} `json:"assigned"`
	Roles []devcluster.Role `json:"roles"`
}

// ready says whether the node has a role that is Ready.
func (l listed) ready(name string) bool {
	return slices.ContainsFunc(l.Roles, func(role devcluster.Role) bool { return role.Role == name && role.State == "Ready" })
}

// listed returns a node of the cluster, as it is listed now: nothing if it is not, or nobody answers for a moment, while the leader of the store changes.
func (r *reader) listed(id string) listed {
	r.t.Helper()
	result := r.desk.Run(r.t, "reeve node list -o json")
	if result.Code != 0 {
		return listed{}
	}
	var document struct {
		Nodes []listed `json:"nodes"`
	}
	if err := json.Unmarshal([]byte(result.Stdout), &document); err != nil {
		r.t.Fatalf("%v: %s", err, result)
	}
	for _, node := range document.Nodes {
		if node.ID == id {
			return node
		}
	}
	return listed{}
}

// state is the state of a node, as the cluster sees it.
func (r *reader) state(id string) string {
	r.t.Helper()
	return r.listed(id).State
}

// controls are the roles of the control plane that a node has.
func (r *reader) controls(id string) []string {
	r.t.Helper()
	var roles []string
	for _, assigned := range r.listed(id).Assigned {
		if assigned.Role == "consensus" || assigned.Role == "curator" {
			roles = append(roles, assigned.Role)
		}
	}
	return roles
}

// sick waits until the cluster has not heard of a node for too long.
func (r *reader) sick(machine *lab.Machine, id string) {
	r.t.Helper()
	eventually.True(r.t, patience, machine.Name+" is missed", func() (bool, string) {
		node := r.listed(id)
		return node.ID != "" && !node.Healthy, strings.TrimSpace(node.State + " " + node.Problem)
	})
}
