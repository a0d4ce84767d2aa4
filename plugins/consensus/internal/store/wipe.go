package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/reeveproject/reeve/plugins/consensus/internal/numbers"
	"github.com/reeveproject/reeve/plugins/consensus/internal/steps"
	"github.com/reeveproject/reeve/proto/identity"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/sdk/checkpoint"
)

// ErrChanged says that a key is not any more as it was when it was acted upon.
var ErrChanged = errors.New("the document of desired users has changed meanwhile")

// wipedKeys is how many keys are removed at a time: other writes come in between, and wait a few milliseconds at most.
const wipedKeys = 128

// Wipe removes what a user has stored, and takes its number back, for as long as the key document is as it was at a revision: ErrChanged if it is not. The
// user must have been removed. It returns how many keys it removed, and can be repeated: what is gone already is no error.
func (s *Store) Wipe(ctx context.Context, user, document string, revision int64) (removed int64, err error) {
	if !identity.ValidConsensusUser(user) || user == s.plan.ClusterUser {
		return 0, fmt.Errorf("the user %q is not to be wiped", user)
	}
	accounts, err := s.Accounts()
	if err != nil {
		return 0, err
	}
	if slices.Contains(accounts, user) {
		return 0, fmt.Errorf("the user %s is still there", user)
	}
	root, prefix := Root(ctx), consensusv1.UserPrefix(user)
	unchanged := clientv3.Compare(clientv3.ModRevision(document), "=", revision)
	for {
		found, err := s.client.Get(root, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(wipedKeys))
		if err != nil {
			return removed, fmt.Errorf("list the keys of the user %s: %w", user, err)
		}
		if len(found.Kvs) == 0 {
			return removed, s.takeNumberBack(root, user, unchanged)
		}
		after := string(found.Kvs[len(found.Kvs)-1].Key) + "\x00"
		checkpoint.Before(steps.WipeKeys)
		answer, err := s.client.Txn(root).If(unchanged).Then(clientv3.OpDelete(string(found.Kvs[0].Key), clientv3.WithRange(after))).Commit()
		if err == nil && answer.Succeeded {
			checkpoint.After(steps.WipeKeys)
		}
		switch {
		case err != nil:
			return removed, fmt.Errorf("remove keys of the user %s: %w", user, err)
		case !answer.Succeeded:
			return removed, ErrChanged
		}
		removed += answer.Responses[0].GetResponseDeleteRange().GetDeleted()
	}
}

// takeNumberBack ends what is left of a user without keys: its leases are nobody's from then on.
func (s *Store) takeNumberBack(root context.Context, user string, unchanged clientv3.Cmp) error {
	key := numbers.Key(user)
	for range attempts {
		found, err := s.client.Get(root, key)
		if err != nil {
			return fmt.Errorf("read the number of the user %s: %w", user, err)
		}
		if len(found.Kvs) == 0 {
			return nil
		}
		last, seen, err := s.lastNumber(root)
		if err != nil {
			return err
		}
		checkpoint.Before(steps.TakeNumberBack)
		answer, err := s.client.Txn(root).
			If(unchanged, clientv3.Compare(clientv3.ModRevision(numbers.LastKey), "=", seen)).
			Then(clientv3.OpDelete(key), clientv3.OpPut(numbers.LastKey, numbers.Format(last))).
			Else(clientv3.OpTxn([]clientv3.Cmp{unchanged}, nil, nil)).
			Commit()
		if err == nil && answer.Succeeded {
			checkpoint.After(steps.TakeNumberBack)
		}
		switch {
		case err != nil:
			return fmt.Errorf("take back the number of the user %s: %w", user, err)
		case answer.Succeeded:
			s.refreshUsers()
			return nil
		case !answer.Responses[0].GetResponseTxn().GetSucceeded():
			return ErrChanged
		}
	}
	return fmt.Errorf("take back the number of the user %s: %w", user, errContended)
}
