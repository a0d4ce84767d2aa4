package store

import (
	"context"
	"errors"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/reeveproject/reeve/plugins/consensus/internal/numbers"
	"github.com/reeveproject/reeve/plugins/consensus/internal/steps"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/sdk/checkpoint"
)

// Number is that of a user that is there; 0: there is none.
func (s *Store) Number(user string) uint32 { return s.Numbers()[user] }

// Numbers are those of all users, as the local member last looked. The map is not changed.
func (s *Store) Numbers() map[string]uint32 {
	if known := s.accounts.numbers.Load(); known != nil {
		return *known
	}
	return nil
}

// readNumbers reads the numbers that the local member has stored.
func (s *Store) readNumbers() (map[string]uint32, error) {
	answer, err := s.etcd.Server.KV().Range(context.Background(), []byte(numbers.Prefix), []byte(clientv3.GetPrefixRangeEnd(numbers.Prefix)), mvcc.RangeOptions{})
	if err != nil {
		return nil, err
	}
	known := make(map[string]uint32, len(answer.KVs))
	for _, kv := range answer.KVs {
		user, ok := numbers.UserOf(string(kv.Key))
		if !ok {
			continue
		}
		if known[user], err = numbers.Parse(kv.Value); err != nil {
			return nil, fmt.Errorf("%s: %w", kv.Key, err)
		}
	}
	return known, nil
}

// numbersRevision is when a number was last given or taken back: whoever does it writes LastKey.
func (s *Store) numbersRevision() int64 {
	answer, err := s.etcd.Server.KV().Range(context.Background(), []byte(numbers.LastKey), nil, mvcc.RangeOptions{})
	if err != nil || len(answer.KVs) == 0 {
		return 0
	}
	return answer.KVs[0].ModRevision
}

// attempts bounds how often a transaction is repeated that another member came before.
const attempts = 8

// errContended says that others came before, every time.
var errContended = errors.New("others change it at the same time")

// ensureNumber gives a user a number, if it has none. Numbers grow and are never given again.
func (s *Store) ensureNumber(root context.Context, user string) error {
	key := numbers.Key(user)
	if answer, err := s.etcd.Server.KV().Range(root, []byte(key), nil, mvcc.RangeOptions{}); err == nil && len(answer.KVs) > 0 {
		return nil
	}
	for range attempts {
		last, seen, err := s.lastNumber(root)
		if err != nil {
			return err
		}
		if last >= numbers.Max {
			return fmt.Errorf("%d numbers were given to users, and there are no more", last)
		}
		next := numbers.Format(last + 1)
		checkpoint.Before(steps.GiveNumber)
		answer, err := s.client.Txn(root).
			If(clientv3.Compare(clientv3.ModRevision(numbers.LastKey), "=", seen)).
			Then(clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)},
				[]clientv3.Op{clientv3.OpPut(numbers.LastKey, next), clientv3.OpPut(key, next)}, nil)).
			Commit()
		if err == nil && answer.Succeeded {
			checkpoint.After(steps.GiveNumber)
		}
		if err != nil || answer.Succeeded {
			return err
		}
	}
	return errContended
}

// lastNumber is the number that was given last, and the revision of the store at which that was.
func (s *Store) lastNumber(root context.Context) (last uint32, modified int64, err error) {
	answer, err := s.client.Get(root, numbers.LastKey)
	if err != nil || len(answer.Kvs) == 0 {
		return 0, 0, err
	}
	if last, err = numbers.Parse(answer.Kvs[0].Value); err != nil {
		return 0, 0, fmt.Errorf("%s: %w", numbers.LastKey, err)
	}
	return last, answer.Kvs[0].ModRevision, nil
}

// listLeases are the IDs of all leases.
func (s *Store) listLeases() ([]int64, error) {
	if s.closing() {
		return nil, errStopped
	}
	all, err := s.etcd.Server.LeaseLeases(Root(context.Background()), nil)
	if err != nil {
		return nil, err
	}
	ids := make([]int64, len(all.Leases))
	for n, lease := range all.Leases {
		ids[n] = lease.GetID()
	}
	return ids, nil
}

// RevokeOrphans revokes the leases of users that were wiped. A number that was taken back is never given again, so whatever carries it is nobody's for
// good.
func (s *Store) RevokeOrphans(ctx context.Context) error {
	root := Root(ctx)
	all, err := s.etcd.Server.LeaseLeases(root, nil) // before the numbers are read: whoever has a lease had its number before
	if err != nil {
		return fmt.Errorf("list the leases: %w", err)
	}
	local := make(map[uint32]bool)
	for _, number := range s.Numbers() {
		local[number] = true
	}
	var suspects []int64
	for _, lease := range all.Leases {
		if number := numbers.OfLease(lease.ID); number != 0 && !local[number] {
			suspects = append(suspects, lease.ID)
		}
	}
	if len(suspects) == 0 {
		return nil
	}
	taken, last, err := s.takenNumbers(root)
	if err != nil {
		return err
	}
	for _, lease := range suspects {
		number := numbers.OfLease(lease)
		if taken[number] || number > last {
			continue
		}
		if _, err := s.client.Revoke(root, clientv3.LeaseID(lease)); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return fmt.Errorf("revoke a lease of a user that was wiped: %w", err)
		}
	}
	return nil
}

// takenNumbers are those that users have, as a quorum has it, and the last that was given.
func (s *Store) takenNumbers(root context.Context) (taken map[uint32]bool, last uint32, err error) {
	answer, err := s.client.Get(root, numbers.Prefix, clientv3.WithPrefix())
	if err != nil {
		return nil, 0, fmt.Errorf("read the numbers of the users: %w", err)
	}
	taken = make(map[uint32]bool, len(answer.Kvs))
	for _, kv := range answer.Kvs {
		number, err := numbers.Parse(kv.Value)
		if err != nil {
			return nil, 0, fmt.Errorf("%s: %w", kv.Key, err)
		}
		taken[number] = true
	}
	last, _, err = s.lastNumber(root)
	return taken, last, err
}

// Leases are those of a user.
func (s *Store) Leases(user string) (*pb.LeaseLeasesResponse, error) {
	all := &pb.LeaseLeasesResponse{Header: &pb.ResponseHeader{
		ClusterId: uint64(s.etcd.Server.Cluster().ID()), MemberId: uint64(s.etcd.Server.MemberID()),
		RaftTerm: s.etcd.Server.Term(), Revision: s.etcd.Server.KV().Rev(),
	}}
	number := s.Number(user)
	if number == 0 {
		return all, nil
	}
	ids, err := s.usage.Leases(number)
	for _, id := range ids {
		all.Leases = append(all.Leases, &pb.LeaseStatus{ID: id})
	}
	return all, err
}

// Revoked says that a user has given a lease back: it may have another at once.
func (s *Store) Revoked(lease int64) { s.usage.Revoked(lease) }

// UsageOf is what a user has at this moment.
func (s *Store) UsageOf(user string) *consensusv1.UserUsage { return s.usage.Of(user) }
