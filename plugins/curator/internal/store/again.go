package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// What was under way when the leader of the consensus store died is answered to nobody: the members that live do not know of it. So a write is sent again after
// firstTry, and then after ever longer times, as long as it is waited for at all.
const (
	firstTry  = 500 * time.Millisecond
	tryGrowth = 1.3
)

// electing are what the store says that has no leader, or has another one than a moment before.
var electing = []error{
	rpctypes.ErrLeaderChanged, rpctypes.ErrNoLeader, rpctypes.ErrTimeout, rpctypes.ErrTimeoutDueToLeaderFail, rpctypes.ErrTimeoutDueToConnectionLost,
}

func elects(err error) bool {
	return slices.ContainsFunc(electing, func(said error) bool { return errors.Is(err, said) })
}

// cut reports whether the connection to the member of this node broke, which its core starts again: it may have been the leader.
func cut(err error) bool { return !elects(err) && status.Code(err) == codes.Unavailable }

// A store that has no leader may say so at once. Whoever is told that asks again after firstPause, and then after ever longer pauses up to lastPause: each of them longer or
// shorter by chance, so that those who were told at the same time do not all come back at the same time.
const (
	firstPause = 20 * time.Millisecond
	lastPause  = 500 * time.Millisecond
)

func newPauses() *backoff.ExponentialBackOff {
	pauses := &backoff.ExponentialBackOff{InitialInterval: firstPause, MaxInterval: lastPause, Multiplier: 2, RandomizationFactor: 0.5}
	pauses.Reset()
	return pauses
}

// rested waits for a pause, and reports whether there is still somebody who waits for an answer.
func rested(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// readAgain makes a transaction that only reads, and makes it again while the store elects a leader.
func readAgain(ctx context.Context, client *clientv3.Client, gets ...clientv3.Op) (*clientv3.TxnResponse, error) {
	return transactAgain(ctx, func() clientv3.Txn { return client.Txn(ctx).Then(gets...) })
}

// readAgainUnless is readAgain that reads nothing if all compares hold, and has succeeded then.
func readAgainUnless(ctx context.Context, client *clientv3.Client, compares []clientv3.Cmp, gets ...clientv3.Op) (*clientv3.TxnResponse, error) {
	return transactAgain(ctx, func() clientv3.Txn { return client.Txn(ctx).If(compares...).Else(gets...) })
}

func transactAgain(ctx context.Context, transaction func() clientv3.Txn) (*clientv3.TxnResponse, error) {
	var lost time.Time
	for pauses := newPauses(); ; {
		response, err := transaction().Commit()
		if cut(err) && lost.IsZero() {
			lost = time.Now()
		}
		// A member that stays away for longer than impatience is not waited for: there are curators whose member is there.
		if again := elects(err) || cut(err) && time.Since(lost) < impatience; !again || !rested(ctx, pauses.NextBackOff()) {
			return response, err
		}
	}
}

// writeAgain makes a transaction that may have been made before, and makes it again while it is not answered. It must be one that cannot succeed twice. tries is how
// often it was made.
func writeAgain(ctx context.Context, make func(context.Context) (*clientv3.TxnResponse, error)) (response *clientv3.TxnResponse, tries int, err error) {
	pauses := newPauses()
	for within := firstTry; ; within = time.Duration(tryGrowth * float64(within)) {
		bounded, cancel := context.WithTimeout(ctx, within)
		response, err = make(bounded)
		late := bounded.Err() != nil
		cancel()
		if tries++; err == nil || ctx.Err() != nil || !late && !elects(err) && !cut(err) {
			return response, tries, err
		}
		// One that was not answered has waited already.
		if !late && !rested(ctx, pauses.NextBackOff()) {
			return response, tries, err
		}
	}
}
