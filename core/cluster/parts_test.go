package cluster_test

import (
	"testing"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// A directory that comes in several messages is none before all of it is there.
func TestADirectoryInParts(t *testing.T) {
	n, c := start(t)
	first := n.response(8)
	first.Directory, first.More = &hostv1.Directory{Revision: 8, Nodes: []*hostv1.DirectoryNode{{NodeId: "a"}}}, true
	c.view.Set(first)
	await(t, &c.streamed, func(n int) bool { return n == 1 })
	rest := n.difference(8, 8, nil, &hostv1.DirectoryNode{NodeId: "b"})
	c.view.Set(rest)
	for watcher := n.client.View().Watch(); ; {
		view, err := watcher.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := len(view.Directory.GetNodes()); got == 2 {
			return
		} else if got == 1 {
			t.Fatalf("a part of the directory was taken for the whole: %v", view.Directory)
		}
	}
}
