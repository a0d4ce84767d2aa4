package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
)

// Close stops the member. Whoever serves its API must have stopped before. It fails with a *BrokenError if etcd does not stop.
func (s *Store) Close() error {
	if !s.halt() {
		return s.unstopped()
	}
	s.lock.Close()
	return nil
}

func (s *Store) unstopped() error {
	return &BrokenError{Cause: fmt.Sprintf("member %s does not stop; its data in %s stays locked until the role is started again", s.marker.MemberID, s.directory)}
}

// Replace is Close for a member whose Run has ended with ErrRemoved: what it had stored is put aside. The next call of Open has a new member join, or finds that there is to be none.
func (s *Store) Replace() error {
	if !s.halt() {
		return s.unstopped()
	}
	defer s.lock.Close()
	_, err := s.replace()
	return err
}

// halt stops etcd, and reports whether nothing of it runs any more. It may be called again.
func (s *Store) halt() bool {
	if s.halted {
		return true
	}
	if s.stopped == nil {
		s.stopped = make(chan struct{})
		s.cede()
		s.peering.stop()
		if s.client != nil {
			s.client.Close() // its error only says that it is closed
		}
		go func() {
			defer close(s.stopped)
			if s.etcd != nil {
				s.etcd.Close()
				s.following.Wait()
			}
		}()
	}
	select {
	case <-s.stopped:
	case <-time.After(stopBound):
		s.log.Error("etcd has not stopped; going on without it", "after", stopBound.String())
		return false // the lock stays: etcd may still write
	}
	s.halted = true // who still asks it finds a store that has stopped
	return true
}

// maxHandover keeps a handover within the time that a role has to stop, whatever the election time is.
const maxHandover = 5 * time.Second

func (c Config) handover() time.Duration {
	return cmp.Or(c.Handover, min(2*c.election(), maxHandover))
}

// cede hands the leadership to another voter that answers, if the local member is the leader. etcd tries this itself when it stops, but by then the peers cannot be
// reached. If the handover fails, only time is lost: the others elect a leader by themselves.
func (s *Store) cede() {
	if s.etcd == nil || !s.Leads() {
		return
	}
	server := s.etcd.Server
	own := uint64(server.MemberID())
	others := slices.DeleteFunc(s.Peers(), func(peer Peer) bool { return peer.Learner || peer.ID == own })
	if len(others) == 0 || s.Removed(own) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.config.handover())
	defer cancel()
	go func() {
		select {
		case <-server.StopNotify():
			cancel() // nobody leads here any more
		case <-ctx.Done():
		}
	}()
	to := s.successor(ctx, others)
	if to == nil {
		s.log.Warn("no voter answers that could take over the leadership of the store; the others have to elect a leader")
		return
	}
	id, err := peers.ParseMember(to.Member)
	if err == nil {
		err = server.MoveLeader(ctx, own, id)
	}
	if err != nil {
		s.log.Warn("cannot hand the leadership of the store over before this member stops; the others have to elect a leader without it", "to", to.Member, "error", err)
	}
}

// successor asks the other voters until one of them follows the local member, and returns the one that has applied most; nil: none has answered in time.
func (s *Store) successor(ctx context.Context, others []Peer) (to *peers.State) {
	asking, stop := context.WithTimeout(ctx, s.config.handover()/2)
	defer stop()
	for {
		answers := s.Ask(asking)
		for _, other := range others {
			state, ok := answers[other.ID]
			if ok && state.Leader == s.MemberID() && (to == nil || state.Applied > to.Applied) {
				to = &state
			}
		}
		if to != nil {
			return to
		}
		select {
		case <-asking.Done():
			return nil
		case <-time.After(50 * time.Millisecond): // a busy machine may take longer than one answer is waited for
		}
	}
}
