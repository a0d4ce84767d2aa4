package service_test

import (
	"bytes"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/reeveproject/reeve/plugins/consensus/internal/service"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// soon has the leader compare what the members hold all the time.
func soon(config *service.Config) { config.CompareInterval = 200 * time.Millisecond }

// falsify changes a value in the database of a member that does not run.
func (c *cluster) falsify(id, old, changed string) {
	c.t.Helper()
	database, err := bolt.Open(filepath.Join(c.root, id, "data", "etcd", "member", "snap", "db"), 0o600, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	defer database.Close()
	found := false
	err = database.Update(func(tx *bolt.Tx) error {
		bucket := tx.Bucket([]byte("key"))
		return bucket.ForEach(func(key, value []byte) error {
			if !bytes.Contains(value, []byte(old)) {
				return nil
			}
			found = true
			return bucket.Put(bytes.Clone(key), bytes.ReplaceAll(value, []byte(old), []byte(changed)))
		})
	})
	if err != nil || !found {
		c.t.Fatalf("falsify: found %t, %v", found, err)
	}
}

// damaged is a store in which exactly one node's member is named as damaged.
func damaged(node string) func(*consensusv1.StoreState) bool {
	return func(state *consensusv1.StoreState) bool {
		for _, member := range state.Members {
			if (member.Damage != "") != (member.NodeId == node) {
				return false
			}
		}
		return true
	}
}

// endingOnce has the first member that comes to a step wait there until it is released, and says which one it is.
func endingOnce(step string) (change func(id string) func(*service.Config), ending <-chan string, release func()) {
	came, released := make(chan string, 1), make(chan struct{})
	var once sync.Once
	return func(id string) func(*service.Config) {
		return func(config *service.Config) {
			config.Before = func(at string) {
				if at == step {
					once.Do(func() { came <- id; <-released })
				}
			}
		}
	}, came, sync.OnceFunc(func() { close(released) })
}

// TestFalseMember names a member whose database was changed, the leader among them, everywhere. It gives no access, does not lead, and is replaced, while the others go on. The leader that finds the first one ends before it
// has noted that: the next leader finds it.
func TestFalseMember(t *testing.T) {
	all := []string{"reeve-1", "reeve-2", "reeve-3"}
	ends, ending, release := endingOnce("note-damage")
	defer release()
	c := newCluster(t)
	first := c.start("reeve-1", soon, ends("reeve-1"))
	if err := first.form("new"); err != nil {
		t.Fatal(err)
	}
	client := first.client()
	c.want(client, all...)
	for _, id := range all[1:] {
		c.start(id, soon, ends(id)).join()
	}
	c.await(client, "all vote", settled(all...))
	for _, id := range []string{"reeve-3", "reeve-1"} {
		other := c.nodes["reeve-2"].client()
		before := member(told(t, other), id)
		c.put(other, "precious", "gold-of-"+id)
		if _, err := c.nodes[id].client().Get(t.Context(), "/reeve/users/curator/precious"); err != nil { // which waits until this member has applied it
			t.Fatal(err)
		}
		// The database of a member that is stopped in order is as new as its log, so nothing is applied again.
		c.nodes[id].stop()
		c.falsify(id, "gold-of-"+id, "lead-of-"+id)
		bad := c.start(id, soon)
		if err := bad.form("existing"); err != nil {
			t.Fatal(err)
		}
		if id == "reeve-3" {
			c.endLeader(ending, release)
			other = c.nodes["reeve-2"].client()
		}
		state := c.await(other, id+" is named", damaged(id))
		for _, one := range state.Members {
			if one.NodeId == id && (!strings.Contains(one.Damage, "`reeve store replace "+id+"`") || !strings.Contains(one.Damage, "reeve-2")) {
				t.Errorf("the damage is %q", one.Damage)
			}
		}
		for _, node := range all {
			stream, err := c.nodes[node].WatchStore(t.Context(), &consensusv1.WatchStoreRequest{})
			if err != nil {
				t.Fatal(err)
			}
			(&follower{stream: stream, t: t}).until(node+" names it", func(s *consensusv1.StoreStatus) bool {
				return strings.Contains(s.Problem, "reeve store replace "+id) && s.LeaderId != before
			})
		}
		refused := &consensusv1.AccessInstance{InstanceId: id + "/ant", ConsensusUser: "curator", Socket: filepath.Join(c.root, id, "ant.sock"), Uid: 1}
		bad.access++
		if _, err := bad.SetAccess(t.Context(), &consensusv1.SetAccessRequest{CoreStart: 1, Number: bad.access, Instances: []*consensusv1.AccessInstance{refused}}); err != nil {
			t.Fatal(err)
		}
		stream, err := bad.WatchStore(t.Context(), &consensusv1.WatchStoreRequest{})
		if err != nil {
			t.Fatal(err)
		}
		(&follower{stream: stream, t: t}).until("nobody is let in there", func(s *consensusv1.StoreStatus) bool {
			return len(s.Access) == 1 && s.Access[0].State == consensusv1.AccessState_ACCESS_STATE_WAITING && strings.Contains(s.Access[0].Reason, "damaged")
		})
		c.put(other, "others", "go on")
		c.replace(other, before, all...)
		c.await(other, "it is replaced", func(s *consensusv1.StoreState) bool {
			return settled(all...)(s) && damaged("")(s) && member(s, id) != before
		})
		if got, err := c.nodes[id].client().Get(t.Context(), "/reeve/users/curator/precious"); err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "gold-of-"+id {
			t.Errorf("the new member holds %v, %v", got, err)
		}
	}
}

// endLeader ends the leader that has come to a step, and starts it again.
func (c *cluster) endLeader(ending <-chan string, release func()) {
	c.t.Helper()
	var leader string
	select {
	case leader = <-ending:
	case <-time.After(storetest.Bound):
		c.t.Fatal("the step was never taken")
	}
	c.nodes[leader].end() // so that the change is not made once it is released
	release()
	c.nodes[leader].stop()
	if err := c.start(leader, soon).form("existing"); err != nil {
		c.t.Fatal(err)
	}
}

// TestTwoMembersThatDiffer names both, says how to choose, and keeps both open: nobody knows which one is right.
func TestTwoMembersThatDiffer(t *testing.T) {
	c := newCluster(t)
	first := c.start("reeve-1", soon)
	if err := first.form("new"); err != nil {
		t.Fatal(err)
	}
	client := first.client()
	c.want(client, "reeve-1", "reeve-2")
	c.start("reeve-2", soon).join()
	c.await(client, "both vote", settled("reeve-1", "reeve-2"))
	c.put(client, "precious", "gold")
	if _, err := c.nodes["reeve-2"].client().Get(t.Context(), "/reeve/users/curator/precious"); err != nil { // which waits until this member has applied it
		t.Fatal(err)
	}
	c.nodes["reeve-2"].stop()
	c.falsify("reeve-2", "gold", "lead")
	if err := c.start("reeve-2", soon).form("existing"); err != nil {
		t.Fatal(err)
	}
	state := c.await(client, "both are named", func(s *consensusv1.StoreState) bool {
		return len(s.Members) == 2 && s.Members[0].Damage != "" && s.Members[1].Damage != ""
	})
	if damage := state.Members[0].Damage; !strings.Contains(damage, "no majority") || !strings.Contains(damage, "reeve store replace NODE") {
		t.Errorf("the damage is %q", damage)
	}
	c.put(client, "both", "go on")
	c.replace(client, member(state, "reeve-2"), "reeve-1", "reeve-2")
	c.await(client, "the one that was chosen is replaced", func(s *consensusv1.StoreState) bool {
		return settled("reeve-1", "reeve-2")(s) && damaged("")(s) && member(s, "reeve-2") != member(state, "reeve-2")
	})
}
