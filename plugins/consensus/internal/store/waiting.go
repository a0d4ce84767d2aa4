package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
)

// waitingAfter is how long a member may take to serve before somebody is told what it waits for: the others may be about to start, too, and are elected with.
const waitingAfter = 5 * time.Second

// tellWaiting reports what a member that does not serve yet waits for, each time that changes, until ctx is done.
func (s *Store) tellWaiting(ctx context.Context) {
	if s.config.Waiting == nil {
		return
	}
	ticker := time.NewTicker(waitingAfter)
	defer ticker.Stop()
	for told := ""; ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if reason := s.waiting(ctx); ctx.Err() == nil && reason != told {
			told = reason
			s.config.Waiting(reason)
		}
	}
}

// waiting says what a member that does not serve yet waits for. It names the addresses that the store knows of the silent members: a node whose address has changed
// is not found.
func (s *Store) waiting(ctx context.Context) string {
	if s.Learner() {
		return "the member is taking over the data of the store"
	}
	answers, voters := s.Ask(ctx), slices.DeleteFunc(s.Peers(), func(peer Peer) bool { return peer.Learner })
	var silent []string
	for _, peer := range voters {
		if _, ok := answers[peer.ID]; !ok {
			name := peer.Node
			if name == "" {
				name = "member " + peers.FormatMember(peer.ID)
			}
			silent = append(silent, name+" at "+strings.ReplaceAll(strings.Join(peer.URLs, " or "), "https://", ""))
		}
	}
	if len(silent) == 0 {
		return "the member of the store has started, and does not serve yet"
	}
	return fmt.Sprintf("the store waits for more than half of its %d voting members; those of %s do not answer; start these nodes, and check that this node reaches them; if their addresses have changed, give each node those of the others (`reeve node peers self ADDRESS…`, on each machine)",
		len(voters), strings.Join(silent, ", "))
}

// awaitUsers has authorization on and the cluster user there. A learner cannot see to that, and waits until it has taken both over.
func (s *Store) awaitUsers(ctx context.Context) error {
	ticker := time.NewTicker(versionInterval)
	defer ticker.Stop()
	for s.Learner() {
		if s.closing() {
			return errStopped
		}
		if s.etcd.Server.AuthStore().IsAuthEnabled() && s.confined(s.plan.ClusterUser) {
			return nil
		}
		select {
		case <-ticker.C:
		case <-s.etcd.Server.StopNotify():
			return errStopped
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := s.enableAuthorization(ctx); err != nil {
		return fmt.Errorf("turn on etcd's authorization: %w", err)
	}
	return s.EnsureUser(ctx, s.plan.ClusterUser)
}

const (
	// firstAskBound is how long a member that starts waits for what the others say of it, where one of them is away: it may have become the only one of a store that was begun again. What is needed to ask
	// it, the role has when the node has found a curator.
	firstAskBound = 10 * time.Second
	// firstAskAgain is the pause between two questions.
	firstAskAgain = 200 * time.Millisecond
)

// awaitService waits until the member serves, or the others say that it was removed. A member that was away asks them before it serves: the former members of a store that was begun again without them
// may have a majority among themselves.
func (s *Store) awaitService(ctx context.Context) error {
	awaiting, stop := context.WithCancelCause(ctx)
	var asked sync.WaitGroup
	defer asked.Wait()
	defer stop(nil)
	first := make(chan struct{})
	asked.Go(func() {
		removed := s.askFirst(awaiting)
		if removed {
			stop(ErrRemoved)
		}
		close(first)
		for !removed && s.pauseToAsk(awaiting) {
			if removed = s.isRemoved(awaiting); removed {
				stop(ErrRemoved)
			}
		}
	})
	asked.Go(func() { s.tellWaiting(awaiting) })
	awaitFirst := func(context.Context) error {
		<-first
		return context.Cause(awaiting)
	}
	for _, await := range []func(context.Context) error{s.awaitReady, awaitFirst, s.awaitUsers, s.awaitVersion} {
		if err := await(awaiting); err != nil {
			if errors.Is(context.Cause(awaiting), ErrRemoved) {
				return ErrRemoved
			}
			return err
		}
	}
	return nil
}

// askFirst asks the others, if there are any, whether a member that has been one of them still is. Where all of them start again with the same CA, and the node knows of no
// other store, nobody has begun one.
func (s *Store) askFirst(ctx context.Context) (removed bool) {
	if s.config.Join == nil || s.config.Place == nil || !s.finished.Load() || len(s.otherPeers()) == 0 && !s.behind() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, firstAskBound)
	defer cancel()
	if s.peering.bind(ctx) != nil {
		return false
	}
	for {
		if s.closing() || len(s.Ask(ctx)) > len(s.otherPeers()) && !s.behind() {
			return false
		}
		if answered, removed := s.askPlace(ctx); answered {
			return removed
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(firstAskAgain):
		}
	}
}
