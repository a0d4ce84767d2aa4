package reconcile_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/consensus/internal/desired"
	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
	"github.com/reeveproject/reeve/plugins/consensus/internal/reconcile"
	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// company is a store of one member, which leads others of whom there is nothing but what they say.
type company struct {
	*store.Store
	t      *testing.T
	status event.Value[store.Status]
	own    uint64

	mu      sync.Mutex
	members []store.Peer
	answers map[uint64]peers.State
	refused map[string]bool // nodes whose members etcd does not add
	removed []uint64
}

// others are the IDs of the members of reeve-2 to reeve-5.
const second, third, fourth, fifth = 0xa2, 0xa3, 0xa4, 0xa5

// leaderApplied is how far the leader is.
const leaderApplied = 1000

func newCompany(t *testing.T, voters ...uint64) *company {
	t.Helper()
	s, _ := storetest.Open(t, storetest.Directory(t), storetest.Plan)
	c := &company{Store: s, t: t, own: uint64(s.Server().MemberID()), answers: make(map[uint64]peers.State), refused: make(map[string]bool)}
	c.status.Set(store.Status{MemberID: s.MemberID(), LeaderID: s.MemberID()})
	for _, id := range append([]uint64{c.own}, voters...) {
		c.members = append(c.members, c.peer(id, false))
		c.says(id, leaderApplied, true)
	}
	return c
}

func (c *company) peer(id uint64, learner bool) store.Peer {
	node := "reeve-1"
	if id != c.own {
		node = "reeve-" + string(rune('0'+id-0xa0))
	}
	return store.Peer{ID: id, Node: node, Learner: learner, URLs: []string{peers.URL("192.0.2.1:1")}}
}

func (c *company) says(id, applied uint64, finished bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers[id] = peers.State{Member: peers.FormatMember(id), Leader: peers.FormatMember(c.own), Applied: applied, Finished: finished}
}

func (c *company) silence(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.answers, id)
}

func (c *company) join(id uint64, learner bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.members = append(c.members, c.peer(id, learner))
}

func (c *company) Status() *event.Value[store.Status] { return &c.status }
func (c *company) Applied() uint64                    { return leaderApplied }
func (c *company) Leads() bool                        { return true }
func (c *company) Removed(uint64) bool                { return false }

func (c *company) Peers() []store.Peer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.members)
}

func (c *company) Ask(context.Context) map[uint64]peers.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.answers)
}

func (c *company) AddLearner(_ context.Context, id uint64, node, _ string) error {
	c.mu.Lock()
	refused := c.refused[node]
	c.mu.Unlock()
	if refused {
		return errors.New("a member has this address already")
	}
	c.says(id, leaderApplied, true)
	c.join(id, true)
	return nil
}

func (c *company) Promote(_ context.Context, id uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for n := range c.members {
		if c.members[n].ID == id {
			c.members[n].Learner = false
		}
	}
	return nil
}

func (c *company) RemoveMember(_ context.Context, id uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.members = slices.DeleteFunc(c.members, func(peer store.Peer) bool { return peer.ID == id })
	c.removed = append(c.removed, id)
	return nil
}

func (c *company) MoveLeader(context.Context, uint64) error { return errors.New("not here") }

// lead has the members be as desired until the test ends.
func (c *company) lead(change func(*reconcile.MembersConfig), nodes ...string) {
	c.t.Helper()
	content, err := proto.Marshal(&consensusv1.DesiredState{Members: nodes})
	if err != nil {
		c.t.Fatal(err)
	}
	c.put(desired.Key("curator"), string(content))
	config := reconcile.MembersConfig{Log: storetest.Log(c.t), Store: c, ClusterUser: "curator"}
	if change != nil {
		change(&config)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { _ = reconcile.NewMembers(config).Run(ctx) })
	c.t.Cleanup(func() {
		cancel()
		group.Wait()
	})
}

func (c *company) put(key, value string) {
	c.t.Helper()
	if _, err := c.Client().Put(store.Root(storetest.Context(c.t)), key, value); err != nil {
		c.t.Fatal(err)
	}
}

// told is what is said of a node.
func (c *company) told(node string) *consensusv1.StoreStateMember {
	c.t.Helper()
	answer, err := c.Client().Get(store.Root(storetest.Context(c.t)), consensusv1.UserPrefix("curator")+consensusv1.StoreStateKey)
	if err != nil {
		c.t.Fatal(err)
	}
	if len(answer.Kvs) == 0 {
		return nil
	}
	state := &consensusv1.StoreState{}
	if err := proto.Unmarshal(answer.Kvs[0].Value, state); err != nil {
		c.t.Fatal(err)
	}
	for _, member := range state.Members {
		if member.NodeId == node {
			return member
		}
	}
	return nil
}

func (c *company) await(node, step string) {
	c.t.Helper()
	storetest.Eventually(c.t, "it is told of "+node+": "+step, func() bool { return strings.Contains(c.told(node).GetStep(), step) })
}

// gone are the members that were removed, in order.
func (c *company) gone() []uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.removed)
}

func (c *company) awaitGone(ids ...uint64) {
	c.t.Helper()
	storetest.Eventually(c.t, "the members are removed", func() bool { return slices.Equal(c.gone(), ids) })
}

func (c *company) votes(id uint64) bool {
	return slices.ContainsFunc(c.Peers(), func(peer store.Peer) bool { return peer.ID == id && !peer.Learner })
}

// TestUnfinishedLearnerDoesNotVote keeps one from voting that would have to ask the others for its place if it was started again.
func TestUnfinishedLearnerDoesNotVote(t *testing.T) {
	c := newCompany(t)
	c.says(second, leaderApplied, false)
	c.join(second, true)
	c.lead(nil, "reeve-1", "reeve-2")
	c.await("reeve-2", "about to start to serve")
	if c.votes(second) {
		t.Fatal("a member votes that has not finished its join")
	}
	c.says(second, leaderApplied, true)
	storetest.Eventually(t, "it votes", func() bool { return c.votes(second) })
}

// TestStalledLearnerGoesFromABusyStore gives a learner up although the status of the store changes all the time.
func TestStalledLearnerGoesFromABusyStore(t *testing.T) {
	c := newCompany(t)
	c.join(second, true)
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		ticker := time.NewTicker(5 * time.Millisecond)
		defer ticker.Stop()
		for n := int64(1); ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				c.status.Set(store.Status{MemberID: c.MemberID(), LeaderID: c.MemberID(), InUse: n})
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		group.Wait()
	})
	c.lead(func(config *reconcile.MembersConfig) { config.StallBound = 300 * time.Millisecond }, "reeve-1", "reeve-2")
	c.awaitGone(second)
}

// TestQuorumNeedsThoseWhoKeepUp does not count a voter that answers but has most of the data still to come.
func TestQuorumNeedsThoseWhoKeepUp(t *testing.T) {
	c := newCompany(t, second, third)
	c.says(third, leaderApplied/2, true)
	c.lead(nil, "reeve-1", "reeve-3")
	c.await("reeve-2", "those of reeve-3 do not answer or are far behind")
	if gone := c.gone(); len(gone) > 0 {
		t.Fatalf("%x were removed", gone)
	}
	c.says(third, leaderApplied, true)
	c.awaitGone(second)
}

// TestBadAddressHoldsNobodyUp adds and removes others while one cannot be added.
func TestBadAddressHoldsNobodyUp(t *testing.T) {
	c := newCompany(t, second, third)
	c.refused["reeve-4"] = true
	for node, id := range map[string]uint64{"reeve-4": fourth, "reeve-5": fifth} {
		c.put(peers.AnnouncementKey(node), peers.Announcement{Member: id, Address: "192.0.2.1:1"}.Marshal())
	}
	c.lead(nil, "reeve-1", "reeve-2", "reeve-4", "reeve-5")
	c.await("reeve-4", "has this address already")
	storetest.Eventually(t, "the next one votes", func() bool { return c.votes(fifth) })
	c.awaitGone(third)
	// While a step of another is under way, nothing is told of it.
	storetest.Eventually(t, "the one that cannot be added is told as stuck", func() bool { return c.told("reeve-4").GetStuck() })
}

// TestRemovalLooksAgain gives a removal up if the members have changed since it was decided.
func TestRemovalLooksAgain(t *testing.T) {
	c := newCompany(t, second, third)
	var once sync.Once
	noted := make(chan struct{})
	c.lead(func(config *reconcile.MembersConfig) {
		config.StallBound = time.Millisecond // the removal does not wait for reeve-4
		config.Before = func(step string) {
			if step != "remove" {
				return
			}
			once.Do(func() { // another leader has done that meanwhile
				c.silence(third)
				c.join(fourth, false)
				close(noted)
			})
		}
	}, "reeve-1", "reeve-3", "reeve-4")
	<-noted
	c.await("reeve-2", "no quorum, since of the 3 left those of reeve-3, reeve-4")
	if gone := c.gone(); len(gone) > 0 {
		t.Fatalf("%x were removed by an old picture", gone)
	}
	c.says(third, leaderApplied, true)
	c.awaitGone(second)
}

// TestOneRemovalAtATime does not remove a voter while that of another was begun, of which nobody knows yet whether it comes about.
func TestOneRemovalAtATime(t *testing.T) {
	c := newCompany(t, second, third)
	c.silence(third)
	c.put(peers.RemovedKey(second), "reeve-2") // by a former leader
	c.lead(nil, "reeve-1")
	c.await("reeve-3", "what becomes of that of reeve-2")
	if gone := c.gone(); len(gone) > 0 {
		t.Fatalf("%x were removed", gone)
	}
	c.says(third, leaderApplied, true)
	storetest.Eventually(t, "the one that was begun with is removed first", func() bool { gone := c.gone(); return len(gone) > 0 && gone[0] == second })
}

// announce has a node prepare its member.
func (c *company) announce(id uint64) {
	c.t.Helper()
	c.put(peers.AnnouncementKey(c.peer(id, false).Node), peers.Announcement{Member: id, Address: "192.0.2.1:1"}.Marshal())
}

// TestSwapGrowsFirst takes nobody out of a store before somebody else votes in the same place, but who is of no use.
func TestSwapGrowsFirst(t *testing.T) {
	c := newCompany(t, second, third)
	c.lead(func(config *reconcile.MembersConfig) { config.StallBound = time.Hour }, "reeve-1", "reeve-4", "reeve-5")
	c.await("reeve-2", "as soon as that of reeve-4 or reeve-5 votes")
	c.await("reeve-3", "as soon as that of reeve-4 or reeve-5 votes")
	if gone := c.gone(); len(gone) > 0 {
		t.Fatalf("%x went before anybody came", gone)
	}
	c.announce(fourth)
	storetest.Eventually(t, "one comes, and one goes", func() bool { return c.votes(fourth) && len(c.gone()) == 1 })
	c.await("reeve-3", "as soon as that of reeve-5 votes")
	if gone := c.gone(); len(gone) != 1 {
		t.Fatalf("%x went, and one came", gone)
	}
	c.announce(fifth)
	c.awaitGone(second, third)
}

// TestDeadMemberIsNotHeld checks that a member that does not answer is removed at once, although others are still to come.
func TestDeadMemberIsNotHeld(t *testing.T) {
	c := newCompany(t, second, third)
	c.silence(third)
	c.lead(func(config *reconcile.MembersConfig) { config.StallBound = time.Hour }, "reeve-1", "reeve-4", "reeve-5")
	c.awaitGone(third)
	c.await("reeve-2", "as soon as that of reeve-4 or reeve-5 votes")
}

// TestSwapGoesOnWithoutTheDead checks that a removal does not wait for ever for a node that never comes.
func TestSwapGoesOnWithoutTheDead(t *testing.T) {
	c := newCompany(t, second, third)
	c.silence(third)
	c.lead(func(config *reconcile.MembersConfig) { config.StallBound = 2 * time.Second }, "reeve-1", "reeve-4")
	c.awaitGone(third, second)
}

// TestRemovedNodeIsNotHeld takes the member of a node at once that the cluster has no more, whoever is still to come.
func TestRemovedNodeIsNotHeld(t *testing.T) {
	c := newCompany(t, second, third)
	c.lead(func(config *reconcile.MembersConfig) {
		config.StallBound = time.Hour
		config.Gone = func(node string) bool { return node == "reeve-3" }
	}, "reeve-1", "reeve-4", "reeve-5")
	c.awaitGone(third)
	c.await("reeve-2", "as soon as that of reeve-4 or reeve-5 votes")
}

// hears has a member say whom it reaches and whom it does not.
func (c *company) hears(id uint64, reached, unreached []uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	state := c.answers[id]
	state.Asked, state.Reached, state.Unreached = true, nil, nil
	for _, one := range reached {
		state.Reached = append(state.Reached, peers.FormatMember(one))
	}
	for _, one := range unreached {
		state.Unreached = append(state.Unreached, peers.FormatMember(one))
	}
	c.answers[id] = state
}

// TestUnheardLearnerDoesNotVote has a learner that the leader hears, and another voter does not: it would be of no use to that one.
func TestUnheardLearnerDoesNotVote(t *testing.T) {
	c := newCompany(t, second)
	c.hears(second, []uint64{c.own}, nil)
	c.join(third, true)
	c.says(third, leaderApplied, true)
	c.lead(nil, "reeve-1", "reeve-2", "reeve-3")
	c.await("reeve-3", "cannot vote before it answers the members of reeve-2 at https://192.0.2.1:1")
	if c.votes(third) {
		t.Fatal("it votes")
	}
	c.hears(second, []uint64{c.own, third}, nil)
	storetest.Eventually(t, "it votes", func() bool { return c.votes(third) })
}

// TestBridgeIsNotTakenOut has two members that do not reach each other, while the leader reaches both: the store would have no quorum without it.
func TestBridgeIsNotTakenOut(t *testing.T) {
	c := newCompany(t, second, third)
	c.hears(c.own, []uint64{second, third}, nil)
	c.hears(second, []uint64{c.own}, []uint64{third})
	c.hears(third, []uint64{c.own}, []uint64{second})
	c.lead(nil, "reeve-2", "reeve-3")
	c.await("reeve-1", "cannot be taken out: without its member the store would have no quorum, since the members of reeve-2 and reeve-3 do not reach each other")
	if told := c.told("reeve-2"); !slices.Equal(told.GetUnreached(), []string{"reeve-3"}) || !told.GetHealthy() {
		t.Errorf("of reeve-2 is told: %v", told)
	}
	if told := c.told("reeve-1"); !told.GetStuck() || len(told.GetUnreached()) > 0 || len(c.gone()) > 0 {
		t.Errorf("of reeve-1 is told: %v; gone is %v", told, c.gone())
	}
	// Then the leadership can be handed over, which is tried.
	c.hears(second, []uint64{c.own, third}, nil)
	c.hears(third, []uint64{c.own, second}, nil)
	c.await("reeve-1", "its member is being removed")
}

// TestDamagedLeaderThatStaysActs has a leader whose data is damaged, and from whom nobody takes over, remove who is to go.
func TestDamagedLeaderThatStaysActs(t *testing.T) {
	c := newCompany(t, second, third, fourth)
	c.put(peers.DamagedKey(c.own, true), "it holds other data")
	handing := make(chan struct{})
	var once sync.Once
	c.lead(func(config *reconcile.MembersConfig) {
		config.Before = func(step string) {
			if step == "hand over" {
				once.Do(func() { close(handing) })
			}
		}
	}, "reeve-1", "reeve-2", "reeve-3")
	c.awaitGone(fourth)
	select {
	case <-handing:
	default:
		t.Error("a damaged leader does not try to hand over")
	}
}
