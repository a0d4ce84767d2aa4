package reconcile

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
	"github.com/reeveproject/reeve/plugins/consensus/internal/steps"
	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/sdk/checkpoint"
)

const (
	// DefaultCompareInterval is how often the leader compares what the members hold.
	DefaultCompareInterval = time.Minute
	// compareShare is the most of its time that the leader spends reading for that: one part of so many. A large store takes long to read. Waiting for a member that does not answer costs nothing.
	compareShare = 50
	// compareLongest is how long the pause is at most, however long it took.
	compareLongest = 15 * time.Minute
	// confirmAfter is the pause before what was found new is looked at a second time. Only what both say is noted.
	confirmAfter = time.Second
)

// HashStore is what a Comparer needs of the store.
type HashStore interface {
	Client() *clientv3.Client
	Leads() bool
	Peers() []store.Peer
	// Hashes are those of what the members hold that can be compared, and how long the local member read for its own.
	Hashes(context.Context) (hashes map[uint64]uint32, took time.Duration, err error)
}

// Comparer has the leader compare what the members hold, and notes who differs. etcd could do this itself, but then every member refuses everything as soon as one is damaged.
type Comparer struct {
	Log   hclog.Logger
	Store HashStore
	// Interval is DefaultCompareInterval if it is zero.
	Interval time.Duration
	// Before is MembersConfig's.
	Before func(step string)

	found map[string]string // by key: what the last look found, if it was another thing than is noted
}

// Run compares until ctx is done, and returns nil then.
func (c *Comparer) Run(ctx context.Context) error {
	interval := c.Interval
	if interval == 0 {
		interval = DefaultCompareInterval
	}
	timer := time.NewTimer(interval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		if !c.Store.Leads() {
			c.found = nil
			timer.Reset(interval)
			continue
		}
		again, took, err := c.round(ctx)
		next := max(interval, min(compareShare*took, compareLongest))
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			c.Log.Warn("cannot compare what the members of the store hold; trying again", "error", err)
		case again:
			next = min(interval, confirmAfter)
		}
		timer.Reset(next)
	}
}

// round looks once. It reports whether it has found what is to be looked at again at once, and how long it took to read what the local member holds.
func (c *Comparer) round(ctx context.Context) (again bool, took time.Duration, err error) {
	hashes, took, err := c.Store.Hashes(ctx)
	if err != nil {
		return false, took, err
	}
	members := c.Store.Peers()
	noted, err := c.Store.Client().Get(store.Root(ctx), peers.DamagedPrefix, clientv3.WithPrefix())
	if err != nil {
		return false, took, fmt.Errorf("read which members of the store are damaged: %w", err)
	}
	before := make(map[string]string)
	for _, found := range noted.Kvs {
		before[string(found.Key)] = string(found.Value)
	}
	now := judge(members, hashes, before)
	keep(before, now, members, hashes)
	if same(before, now) {
		if len(hashes) > 1 { // otherwise nothing was compared, which takes nothing back
			c.found = nil
		}
		return false, took, nil
	}
	if c.found == nil || !same(c.found, now) {
		c.found = now
		return true, took, nil
	}
	c.found = nil
	return false, took, c.note(ctx, before, now)
}

// judge says by their hashes which members are damaged, by the keys of that, and why. Those that cannot be compared are left out. What a majority has said of a member stays true as long as no majority
// says otherwise: before is what is noted.
func judge(members []store.Peer, hashes map[uint64]uint32, before map[string]string) map[string]string {
	damaged, right := differ(members, hashes)
	if right {
		return damaged
	}
	known, others := make(map[string]string), maps.Clone(hashes)
	for id := range hashes {
		if reason, ok := before[peers.DamagedKey(id, true)]; ok {
			known[peers.DamagedKey(id, true)] = reason
			delete(others, id)
		}
	}
	if len(known) > 0 {
		damaged, _ = differ(members, others)
		maps.Copy(damaged, known)
	}
	return damaged
}

// differ says which members hold other data than others. It reports whether a majority of the voting members holds the same.
func differ(members []store.Peer, hashes map[uint64]uint32) (damaged map[string]string, majority bool) {
	groups, voters, nodes := make(map[uint32][]store.Peer), 0, make(map[uint32][]string)
	for _, member := range members {
		if !member.Learner {
			voters++
		}
		if hash, ok := hashes[member.ID]; ok {
			groups[hash] = append(groups[hash], member)
			nodes[hash] = append(nodes[hash], member.Node)
		}
	}
	damaged = make(map[string]string)
	var right []string
	for hash, group := range groups {
		if votes := slices.DeleteFunc(slices.Clone(group), func(member store.Peer) bool { return member.Learner }); 2*len(votes) > voters {
			right = nodes[hash]
		}
	}
	for hash, group := range groups {
		for _, member := range group {
			switch {
			case len(groups) == 1, slices.Equal(nodes[hash], right):
			case right != nil:
				damaged[peers.DamagedKey(member.ID, true)] = fmt.Sprintf("it holds other data than that of %s, and gives no access: run `reeve store replace %s`",
					strings.Join(right, ", "), member.Node)
			default:
				var others []string
				for _, other := range members {
					if otherHash, ok := hashes[other.ID]; ok && otherHash != hash {
						others = append(others, other.Node)
					}
				}
				damaged[peers.DamagedKey(member.ID, false)] = fmt.Sprintf("it holds other data than that of %s, and no majority of the %d voting members says which is right: "+
					"compare what you know on both nodes, keep the one that is right, and run `reeve store replace NODE` for the other one", strings.Join(others, ", "), voters)
			}
		}
	}
	return damaged, right != nil
}

// keep takes over what is noted of the members that could not be compared: that one does not answer mends nothing. The only member of a store differs from nobody.
func keep(before, now map[string]string, members []store.Peer, hashes map[uint64]uint32) {
	if len(members) == 1 {
		return
	}
	for _, member := range members {
		if _, compared := hashes[member.ID]; compared && len(hashes) > 1 {
			continue
		}
		for _, certain := range []bool{true, false} {
			key := peers.DamagedKey(member.ID, certain)
			if reason, ok := before[key]; ok {
				now[key] = reason
			}
		}
	}
}

func same(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for key := range a {
		if _, ok := b[key]; !ok {
			return false // the reasons name who has answered, which changes
		}
	}
	return true
}

// note writes down who is damaged.
func (c *Comparer) note(ctx context.Context, before, now map[string]string) error {
	var operations []clientv3.Op
	for key := range before {
		if _, ok := now[key]; !ok {
			operations = append(operations, clientv3.OpDelete(key))
		}
	}
	for key, reason := range now {
		if _, ok := before[key]; !ok {
			operations = append(operations, clientv3.OpPut(key, reason))
			c.Log.Error("a member of the store is damaged", "member", strings.TrimPrefix(key, peers.DamagedPrefix), "reason", reason)
		}
	}
	if c.Before != nil {
		c.Before(string(steps.NoteDamage))
	}
	return checkpoint.Around(steps.NoteDamage, func() error {
		_, err := c.Store.Client().Txn(store.Root(ctx)).Then(operations...).Commit()
		if err != nil {
			return fmt.Errorf("note which members of the store are damaged: %w", err)
		}
		return nil
	})
}
