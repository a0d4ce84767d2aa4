package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
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
	return fmt.Sprintf("the store waits for more than half of its %d voting members; those of %s do not answer; start these nodes, with the addresses that they had, and check that this node reaches them",
		len(voters), strings.Join(silent, ", "))
}
