package reconcile_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/consensus/internal/desired"
	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// askForAuthority has the cluster API ask for another CA of the peers.
func (c *company) askForAuthority(nodes ...string) {
	c.t.Helper()
	content, err := proto.Marshal(&consensusv1.DesiredState{Members: nodes, PeerAuthorities: 1})
	if err != nil {
		c.t.Fatal(err)
	}
	c.put(desired.Key("curator"), string(content))
}

// authority is the CA that is in the store.
func (c *company) authority() *peers.Authority {
	c.t.Helper()
	authority, err := c.Authority()
	if err != nil || authority == nil {
		c.t.Fatalf("the CA of the peers: %v, %v", authority, err)
	}
	return authority
}

// follow has members say that they follow the CA that is in the store.
func (c *company) follow(ids ...uint64) {
	c.t.Helper()
	for _, id := range ids {
		c.put(peers.FollowedKey(id), c.authority().Mark())
	}
}

// authorityStep is what is said of the replacement of the CA.
func (c *company) authorityStep() string {
	c.t.Helper()
	answer, err := c.Client().Get(store.Root(storetest.Context(c.t)), consensusv1.UserPrefix("curator")+consensusv1.StoreStateKey)
	if err != nil || len(answer.Kvs) == 0 {
		return ""
	}
	state := &consensusv1.StoreState{}
	if err := proto.Unmarshal(answer.Kvs[0].Value, state); err != nil {
		c.t.Fatal(err)
	}
	return state.PeerAuthorityStep
}

// TestReplacementWaitsForOlderVersions starts no replacement while a member has never said which CA it follows: its version cannot read a CA that is being replaced, and its role would not start
// again. From then on each step waits for all members.
func TestReplacementWaitsForOlderVersions(t *testing.T) {
	c := newCompany(t, second, third)
	nodes := []string{"reeve-1", "reeve-2", "reeve-3"}
	c.follow(c.own, second)
	c.lead(nil, nodes...)
	storetest.Eventually(t, "it is told how the members are", func() bool { return c.told("reeve-3") != nil })
	if step := c.authorityStep(); step != "" {
		t.Errorf("nothing is to be replaced, and it is told: %s", step)
	}
	c.askForAuthority(nodes...)
	awaitStep := func(step string) {
		t.Helper()
		storetest.Eventually(t, "it is told: "+step, func() bool { return strings.Contains(c.authorityStep(), step) })
	}
	awaitPhase := func(phase peers.Phase) {
		t.Helper()
		storetest.Eventually(t, "the next step is taken", func() bool { return c.authority().Phase() == phase })
	}
	awaitStep("it starts as soon as the members of reeve-3 can follow")
	if c.authority().Phase() != peers.Steady {
		t.Fatal("the CA is replaced under a member that cannot read it")
	}
	former := c.authority().Certificates()[0]
	c.follow(third)
	awaitPhase(peers.Prepared)
	c.follow(c.own, third)
	awaitStep("the members of reeve-2 have yet to trust the new CA")
	c.follow(second)
	awaitPhase(peers.Active)
	c.follow(second, third)
	awaitStep("the members of reeve-1 have yet to use a certificate of the new CA")
	c.follow(c.own)
	awaitPhase(peers.Steady)
	c.follow(c.own, second)
	awaitStep("the members of reeve-3 have yet to forget the old CA")
	c.follow(third)
	storetest.Eventually(t, "it is told to be done", func() bool { return c.authorityStep() == "" })
	if now := c.authority().Certificates(); len(now) != 1 || string(now[0]) == string(former) {
		t.Error("the CA was not replaced")
	}
}

// TestReplacementIsToldBeforeARemovalIsDone: the key of a member that has left counts until the CA is replaced, which cannot begin while a member is off that may be connected to it. Who looks is told.
func TestReplacementIsToldBeforeARemovalIsDone(t *testing.T) {
	c := newCompany(t, second, third)
	c.follow(c.own, second, third)
	c.put(peers.RemovedKey(fourth), "reeve-4")
	c.put(peers.AbsentKey(fourth, c.own), "")
	c.put(peers.AbsentKey(fourth, second), "")
	c.lead(nil, "reeve-1", "reeve-2", "reeve-3")
	storetest.Eventually(t, "it is told what the replacement waits for", func() bool {
		return c.authorityStep() == "it starts as soon as the removal of the member of reeve-4 is done"
	})
	if c.authority().Phase() != peers.Steady {
		t.Error("a replacement is under way that the removed member could learn of")
	}
	c.put(peers.AbsentKey(fourth, third), "")
	storetest.Eventually(t, "the replacement begins", func() bool { return c.authority().Phase() == peers.Prepared })
}
