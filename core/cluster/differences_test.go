package cluster_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/core/cluster"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// difference is a Watch message that changes the directory of a revision.
func (n *node) difference(revision, from uint64, gone []string, nodes ...*hostv1.DirectoryNode) *clusterv1.WatchResponse {
	response := n.response(revision)
	response.Directory = nil
	response.Difference = &clusterv1.DirectoryDifference{From: from, Revision: revision, Nodes: nodes, Gone: gone}
	return response
}

// ofFirst is a directory as roles are sent it, from the first store of a cluster.
func ofFirst(directory *hostv1.Directory) *hostv1.Directory {
	directory = proto.CloneOf(directory)
	directory.StoreGeneration = new(uint64(0))
	return directory
}

func TestADifferenceMakesTheNextDirectory(t *testing.T) {
	n, c := start(t)
	whole := n.response(8)
	whole.Directory = &hostv1.Directory{Revision: 8, Nodes: []*hostv1.DirectoryNode{{NodeId: "b"}, {NodeId: "d"}, {NodeId: "e"}}}
	c.view.Set(whole)
	at := func(revision uint64) *cluster.View {
		t.Helper()
		return await(t, n.client.View(), func(v *cluster.View) bool { return v.Revision == revision })
	}
	before := at(8)
	c.view.Set(n.difference(9, 8, []string{"e", "never there"}, &hostv1.DirectoryNode{NodeId: "c"}, &hostv1.DirectoryNode{NodeId: "d", Healthy: true}))
	equal(t, "the directory after a difference", at(9).Directory, ofFirst(&hostv1.Directory{Revision: 9, Nodes: []*hostv1.DirectoryNode{
		{NodeId: "b"}, {NodeId: "c"}, {NodeId: "d", Healthy: true},
	}}))
	equal(t, "the directory before it", before.Directory, ofFirst(whole.Directory))

	// A message about something else leaves the directory as it is.
	other := n.difference(10, 0, nil)
	other.Difference = nil
	c.view.Set(other)
	if directory := at(10).Directory; directory.GetRevision() != 9 || len(directory.GetNodes()) != 3 {
		t.Errorf("the directory after a message without one: %v", directory)
	}

	// A difference of another directory is refused, and the watch begins again, with a whole one.
	c.view.Set(n.difference(11, 8, []string{"b"}))
	await(t, &c.calls, func([]call) bool { return c.count("Watch") > 1 })
	if view, _ := n.client.View().Get(); view.Revision != 10 || len(view.Directory.GetNodes()) != 3 {
		t.Errorf("a difference of another directory was taken: %v", view.Directory)
	}
	again := proto.CloneOf(whole)
	again.Revision, again.Directory.Revision = 12, 12
	c.view.Set(again)
	equal(t, "the directory of the next watch", at(12).Directory, ofFirst(again.Directory))
}

// TestWhatIsLeftOutStaysAsItWas leaves out of a message what is the node's own: it is that of the last message that had it, on the same stream.
func TestWhatIsLeftOutStaysAsItWas(t *testing.T) {
	n, c := start(t)
	at := func(revision uint64) *cluster.View {
		t.Helper()
		return await(t, n.client.View(), func(v *cluster.View) bool { return v.Revision == revision })
	}
	for generation := range uint64(2) {
		revision := 10 * (generation + 1)
		whole := n.response(revision)
		whole.Directory = &hostv1.Directory{Revision: revision, Nodes: []*hostv1.DirectoryNode{{NodeId: "b"}}}
		whole.Node.Generation, whole.Plugins = generation, []*clusterv1.PluginRecord{{Name: "lamp"}}
		whole.Operators, whole.Policy = []*clusterv1.Operator{{Name: "anna"}}, &clusterv1.ClusterPolicy{Generation: generation}
		c.view.Set(whole)
		before := at(revision)
		for next := revision + 1; next < revision+3; next++ {
			c.view.Set(&clusterv1.WatchResponse{Revision: next, Difference: &clusterv1.DirectoryDifference{
				From: next - 1, Revision: next, Nodes: []*hostv1.DirectoryNode{{NodeId: "c", Healthy: next%2 == 0}},
			}})
			after := at(next)
			equal(t, "the node", after.Node, before.Node)
			equal(t, "the plugin", after.Plugins[0], before.Plugins[0])
			equal(t, "the operator", after.Operators[0], before.Operators[0])
			equal(t, "the policy", after.Policy, before.Policy)
			if len(after.Directory.GetNodes()) != 2 {
				t.Errorf("the directory is %v", after.Directory)
			}
		}
	}
}
