package service_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/reeveproject/reeve/plugins/consensus/internal/service"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// member is the ID of the member of a node, as the leader tells.
func member(state *consensusv1.StoreState, node string) string {
	for _, one := range state.Members {
		if one.NodeId == node {
			return one.MemberId
		}
	}
	return ""
}

// keptAside checks that the data of a former member is there, readable by nobody else, and that it is a member's.
func (c *cluster) keptAside(id string) {
	c.t.Helper()
	former := filepath.Join(c.root, id, "data", "former")
	info, err := os.Stat(former)
	if err != nil || info.Mode().Perm() != 0o700 {
		c.t.Errorf("what was put aside: %v, %v", info, err)
	}
	if _, err := os.Stat(filepath.Join(former, "etcd", "member", "snap", "db")); err != nil {
		c.t.Errorf("the database of the former member: %v", err)
	}
}

// TestRemovedMemberRejoins removes a member that runs, and whose node is to be one all the same: it joins anew, and nobody asks it to. When the node is to have none, what was put aside stays.
func TestRemovedMemberRejoins(t *testing.T) {
	c := newCluster(t)
	noted, wished := make(chan struct{}), make(chan struct{})
	var once sync.Once
	first := c.start("reeve-1", calm(calmElection), func(config *service.Config) {
		config.Before = func(step string) {
			if step == "remove" {
				once.Do(func() { close(noted); <-wished })
			}
		}
	})
	if err := first.form("new"); err != nil {
		t.Fatal(err)
	}
	client := first.client()
	all := []string{"reeve-1", "reeve-2", "reeve-3"}
	c.want(client, all...)
	for _, id := range all[1:] {
		c.start(id, calm(calmElection)).join()
	}
	before := member(c.await(client, "all vote", settled(all...)), "reeve-3")
	c.want(client, "reeve-1", "reeve-2")
	<-noted
	c.want(client, all...)
	close(wished)
	c.await(client, "a new member of the node votes", func(s *consensusv1.StoreState) bool { return settled(all...)(s) && member(s, "reeve-3") != before })
	c.keptAside("reeve-3")
	if said := c.nodes["reeve-3"].reporter.all(); !strings.Contains(said, "rejoining the store as a new member: ") {
		t.Errorf("the role said %s", said)
	}
	if err := c.nodes["reeve-3"].form("existing"); err != nil { // as a core that starts again calls it
		t.Error(err)
	}

	c.want(client, "reeve-1", "reeve-2")
	c.await(client, "it is out for good", settled("reeve-1", "reeve-2"))
	c.gone("reeve-3")
	c.keptAside("reeve-3")
}

// TestRejoinGoesOn has the role end after each step of a member that joins in the place of a removed one, and the core call for a member that exists.
func TestRejoinGoesOn(t *testing.T) {
	all := []string{"reeve-1", "reeve-2", "reeve-3"}
	c, client := grown(t, all...)
	data := filepath.Join(c.root, "reeve-3", "data")
	mark := func(old, changed string) {
		t.Helper()
		path := filepath.Join(data, "store.json")
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		next := strings.Replace(string(content), old, changed, 1)
		if next == string(content) {
			t.Fatalf("%s is not in the marker %s", old, content)
		}
		if err := os.WriteFile(path, []byte(next), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	move := func() {
		t.Helper()
		for _, err := range []error{os.RemoveAll(filepath.Join(data, "former")), os.Mkdir(filepath.Join(data, "former"), 0o700),
			os.Rename(filepath.Join(data, "etcd"), filepath.Join(data, "former", "etcd"))} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, at := range map[string]func(){
		"nothing is done": func() {},
		"marked":          func() { mark("complete", "replaced") },
		"put aside":       func() { mark("complete", "replaced"); move() },
		"credentials are deleted": func() {
			mark("complete", "replaced")
			move()
			if err := os.RemoveAll(filepath.Join(data, "peer")); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Log(name)
		before := member(told(t, client), "reeve-3")
		c.nodes["reeve-3"].stop()
		c.want(client, "reeve-1", "reeve-2")
		c.await(client, "the silent one goes", settled("reeve-1", "reeve-2"))
		c.want(client, all...)
		at()
		if err := c.start("reeve-3").answered("existing"); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		c.await(client, "a new member votes", func(s *consensusv1.StoreState) bool { return settled(all...)(s) && member(s, "reeve-3") != before })
		c.keptAside("reeve-3")
	}
}
