package usage

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/consensus/internal/desired"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// What a user may have where the cluster API does not say it.
const (
	// DefaultBytes is an eighth of a store by default: as much as a large Kubernetes cluster stores, without what it could be made to.
	DefaultBytes = int64(256 << 20)
	// DefaultLeases are many times those of a role that has a lease for itself and one for each node.
	DefaultLeases = int64(1000)
)

type quota struct{ bytes, leases int64 }

// quota is what a user may have; c.mu is held. That of the cluster user, which is not bounded, is never asked for.
func (c *Counter) quota(user string) quota {
	q := c.quotas[user]
	return quota{bytes: cmp.Or(q.bytes, DefaultBytes), leases: cmp.Or(q.leases, DefaultLeases)}
}

// takeDocument reads what the users may have. A document that cannot be read, or is gone, changes nothing.
func (c *Counter) takeDocument(content []byte) {
	state, err := desired.Parse(content)
	if err != nil {
		return // the reconciler says so
	}
	quotas := make(map[string]quota, len(state.Users))
	for _, user := range state.Users {
		quotas[user.ConsensusUser] = quota{bytes: user.BytesQuota, leases: user.LeasesQuota}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.quotas = quotas
}

// OverQuotaError refuses a request of a user that has used up what it may.
type OverQuotaError struct {
	Usage *consensusv1.UserUsage
	// Bytes or Leases is what the request would have added.
	Bytes, Leases int64
	// Keys is how many keys the user has.
	Keys int64
}

func (e *OverQuotaError) Error() string {
	const way = "the cluster's owner can grant its role more (the grant limit, %s)"
	if e.Leases > 0 {
		return fmt.Sprintf("consensus: the user %s may have %d leases in the store and has %d: revoke some, or put several keys on one; "+way,
			e.Usage.GetConsensusUser(), e.Usage.GetLeasesQuota(), e.Usage.GetLeases(), "store-leases")
	}
	if stored := (Total{Bytes: e.Usage.GetBytes(), Keys: e.Keys}); stored.counts() > stored.Bytes {
		return fmt.Sprintf("consensus: the user %s may have %d bytes in the store and has %d keys, each of which counts %d bytes at least; this request would add %d: "+
			"delete what is no longer needed, or put more into one key; "+way,
			e.Usage.GetConsensusUser(), e.Usage.GetBytesQuota(), e.Keys, bytesOfKey, e.Bytes, "store-bytes")
	}
	return fmt.Sprintf("consensus: the user %s may have %d bytes in the store and has %d; this request would add %d: delete what is no longer needed; "+way,
		e.Usage.GetConsensusUser(), e.Usage.GetBytesQuota(), e.Usage.GetBytes(), e.Bytes, "store-bytes")
}

// GRPCStatus is what the user gets: ResourceExhausted, with its usage as a detail by which package consensus of the SDK knows it.
func (e *OverQuotaError) GRPCStatus() *status.Status {
	plain := status.New(codes.ResourceExhausted, e.Error())
	if detailed, err := plain.WithDetails(e.Usage); err == nil {
		return detailed
	}
	return plain
}

// Now is what the users have, as Usage publishes it.
func (c *Counter) Now() []*consensusv1.UserUsage {
	leases, err := c.leasesOf()
	if err != nil {
		c.config.Log.Debug("the leases of the users are not counted", "error", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	users := map[string]bool{c.config.ClusterUser: true}
	for user := range c.quotas {
		users[user] = true
	}
	for user, a := range c.accounts {
		if a.stored.Bytes != 0 || a.refused != 0 {
			users[user] = true
		}
	}
	for user, count := range leases {
		if count != 0 {
			users[user] = true
		}
	}
	all := make([]*consensusv1.UserUsage, 0, len(users))
	for _, user := range slices.Sorted(maps.Keys(users)) {
		all = append(all, c.entry(user, leases[user]))
	}
	return all
}

// Of is what one user has at this moment.
func (c *Counter) Of(user string) *consensusv1.UserUsage {
	leases, err := c.leasesOf()
	if err != nil {
		c.config.Log.Debug("the leases of the users are not counted", "error", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entry(user, leases[user])
}

// entry is what one user has; c.mu is held.
func (c *Counter) entry(user string, leases int64) *consensusv1.UserUsage {
	entry := &consensusv1.UserUsage{ConsensusUser: user, Leases: leases}
	if a := c.accounts[user]; a != nil {
		entry.Bytes, entry.Refused = a.stored.Bytes, a.refused
	}
	if user != c.config.ClusterUser {
		quota := c.quota(user)
		entry.BytesQuota, entry.LeasesQuota = quota.bytes, quota.leases
	}
	return entry
}

// publish publishes the usage, if it has changed.
func (c *Counter) publish() {
	now := c.Now()
	before, ok := c.usage.Get()
	if ok && slices.EqualFunc(before, now, func(a, b *consensusv1.UserUsage) bool { return proto.Equal(a, b) }) {
		return
	}
	c.usage.Set(now)
}
