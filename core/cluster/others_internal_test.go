package cluster

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

func TestMergeNodes(t *testing.T) {
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	view := func(nodes ...*hostv1.DirectoryNode) *View {
		return &View{Node: &clusterv1.NodeRecord{Id: "self"}, Directory: &hostv1.Directory{Nodes: nodes}}
	}
	at := func(id, address string) *hostv1.DirectoryNode {
		return &hostv1.DirectoryNode{NodeId: id, ApiAddress: address}
	}
	merge := func(what string, v *View, before []keptNode, now time.Time, write bool, want ...string) []keptNode {
		t.Helper()
		list, changed := mergeNodes(v, before, now)
		var got []string
		for _, k := range list {
			got = append(got, fmt.Sprintf("%s@%s %s", k.ID, k.APIAddress, k.Seen.Format(time.DateOnly)))
		}
		if !slices.Equal(got, want) || changed != write {
			t.Errorf("%s: %v, written %t", what, got, changed)
		}
		return list
	}
	list := merge("the first", view(at("self", "s:1"), at("a", "a:1"), at("b", ""), at("c", "no port")), nil, noon, true, "a@a:1 2026-01-02")
	list = merge("nothing new", view(at("a", "a:1")), list, noon.Add(time.Hour), false, "a@a:1 2026-01-02")
	list = merge("a day later", view(at("a", "a:1")), list, noon.Add(25*time.Hour), true, "a@a:1 2026-01-03")
	list = merge("another address", view(at("a", "a:2")), list, noon.Add(48*time.Hour), true, "a@a:2 2026-01-04", "a@a:1 2026-01-03")
	list = merge("another node", view(at("d", "d:1")), list, noon.Add(72*time.Hour), true, "d@d:1 2026-01-05", "a@a:2 2026-01-04", "a@a:1 2026-01-03")
	merge("the first again", view(at("a", "a:1")), list, noon.Add(96*time.Hour), true, "a@a:1 2026-01-06", "d@d:1 2026-01-05", "a@a:2 2026-01-04")

	var many []*hostv1.DirectoryNode
	for n := range 2 * maxNodes {
		many = append(many, at(fmt.Sprint("n", n), fmt.Sprintf("192.0.2.%d:1", n)))
	}
	first, _ := mergeNodes(view(many...), list, noon)
	slices.Reverse(many)
	second, changed := mergeNodes(view(many...), first, noon)
	if len(first) != maxNodes || changed || !slices.Equal(first, second) {
		t.Errorf("of many: %d and %d, written %t", len(first), len(second), changed)
	}

	c := &Client{config: Config{Nodes: filepath.Join(t.TempDir(), "nodes.json")}}
	if err := c.writeNodes(first); err != nil {
		t.Fatal(err)
	}
	if read, err := readNodes(c.config.Nodes); err != nil || !slices.Equal(read, first) {
		t.Errorf("read: %v, %v", read, err)
	}
}

// What one node names takes no place of what another names, and has no machine of the operator's asked at other ports.
func TestAnswersOfANodeThatLies(t *testing.T) {
	c := New(Config{Log: hclog.NewNullLogger(), Known: func() []string { return []string{"former:7443"} }, Peers: event.New([]string{"peer"})})
	take := func(node string, named ...string) { c.takeAnswer(keptNode{ID: node}, named) }
	take("honest", "https://moved:1", "no port")
	for round := range 3 {
		var lies []string
		for n := range 20 {
			lies = append(lies, fmt.Sprintf("lie%d:%d", round, n+1))
		}
		take("liar", lies...)
	}
	known := c.known()
	if want := []string{"former:7443", "peer:7443", "lie2:1", "lie2:2", "lie2:3", "lie2:4", "lie2:5", "lie2:6", "lie2:7", "lie2:8", "moved:1"}; !slices.Equal(known, want) {
		t.Errorf("%q", known)
	}
	for n := range 2 * askTogether {
		take(fmt.Sprint("node", n), fmt.Sprintf("n%d:1", n))
	}
	if asked, _ := c.asked.Get(); len(asked) != askTogether || asked[0].node != "node15" {
		t.Errorf("of many: %v", asked)
	}
}
