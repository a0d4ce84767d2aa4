package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
)

// waitingAfter is how long a member may take to serve before somebody is told what it waits for: the others may be about to start, too, and are elected with.
const waitingAfter = 5 * time.Second

// tellWaiting tells again and again what the member waits for that does not serve yet, as far as that changes, until ctx is done.
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

// waiting says what a member waits for that does not serve yet. It names the addresses, too: they are those that the store knows, and who has others by now is not found.
func (s *Store) waiting(ctx context.Context) string {
	answers, all := s.Ask(ctx), s.Peers()
	var silent []string
	for _, peer := range all {
		if _, ok := answers[peer.ID]; !ok {
			name := peer.Node
			if name == "" {
				name = "member " + peers.FormatMember(peer.ID)
			}
			silent = append(silent, name+" at "+strings.TrimPrefix(strings.Join(peer.URLs, " or "), "https://"))
		}
	}
	if len(silent) == 0 {
		return "the member of the store has been started, and does not serve yet"
	}
	return fmt.Sprintf("the store waits for its members, of which more than half have to be there: of its %d those of %s do not answer; start these nodes, with the addresses that they had, or see that they are reached",
		len(all), strings.Join(silent, ", "))
}
