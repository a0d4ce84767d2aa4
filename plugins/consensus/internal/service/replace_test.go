package service_test

import (
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// replace writes the document with a member that is to be replaced.
func (c *cluster) replace(client *clientv3.Client, member string, nodes ...string) {
	c.t.Helper()
	content, err := proto.Marshal(&consensusv1.DesiredState{Members: nodes, ReplacedMembers: []string{member}})
	if err != nil {
		c.t.Fatal(err)
	}
	c.revision = c.put(client, consensusv1.DesiredStateKey, string(content))
}

// TestReplace has a member that is wished replaced, the leader among them, and the one that a node has then stay.
func TestReplace(t *testing.T) {
	all := []string{"reeve-1", "reeve-2", "reeve-3"}
	c, client := grown(t, all...)
	for _, node := range []string{"reeve-3", "reeve-1"} {
		other := c.nodes["reeve-2"].client()
		before := member(told(t, other), node)
		c.replace(other, before, all...)
		c.await(other, node+" has a new member", func(s *consensusv1.StoreState) bool { return settled(all...)(s) && member(s, node) != before })
		c.keptAside(node)
		after := member(told(t, other), node)
		c.put(other, "still", "1")
		if now := member(c.await(other, "nothing more is done", settled(all...)), node); now != after {
			t.Errorf("the new member %s of %s was replaced by %s", after, node, now)
		}
	}
	_ = client
}

// TestReplaceKeepsTheQuorum refuses to replace a member that the others cannot do without, and says who is missing.
func TestReplaceKeepsTheQuorum(t *testing.T) {
	all := []string{"reeve-1", "reeve-2", "reeve-3"}
	c, client := grown(t, all...)
	c.nodes["reeve-3"].stop()
	state := told(t, client)
	before := member(state, "reeve-2")
	c.replace(client, before, all...)
	c.await(client, "the replacement is refused", func(s *consensusv1.StoreState) bool {
		return len(s.Members) == 3 && s.Members[1].Stuck && strings.Contains(s.Members[1].Step, "reeve-3 do not answer") && s.Members[1].MemberId == before
	})
	back := c.start("reeve-3")
	if err := back.form("existing"); err != nil {
		t.Fatal(err)
	}
	c.await(client, "it is carried out when the missing one is back", func(s *consensusv1.StoreState) bool { return settled(all...)(s) && member(s, "reeve-2") != before })
}

// TestOnlyMemberIsNotReplaced says that nothing could take its place.
func TestOnlyMemberIsNotReplaced(t *testing.T) {
	c, client := grown(t, "reeve-1")
	c.want(client, "reeve-1")
	before := member(c.await(client, "the only one is told", settled("reeve-1")), "reeve-1")
	c.replace(client, before, "reeve-1")
	c.await(client, "it is refused", func(s *consensusv1.StoreState) bool {
		return len(s.Members) == 1 && s.Members[0].Stuck && strings.Contains(s.Members[0].Step, "from a snapshot") && s.Members[0].MemberId == before
	})
}
