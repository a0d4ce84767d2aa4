package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/reeveproject/reeve/core/storage"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

const (
	// generationVersion is the version of the format of the file of the generation.
	generationVersion = 1
	// followAfter is how long this node must have no contact to any curator of the store that it follows before it follows another store. It is time enough to ask all of them, and for a majority of them to elect a leader when all were started at once.
	followAfter = 30 * time.Second
	// recoveredAfter is the same for a store that a survivor of a lost majority has begun, and a node that has had no contact since it started: its own member, and those of others that were lost and
	// start now, do not serve before they know of that store, and know of it by this node. It is time enough to ask the other curators.
	recoveredAfter = 300 * time.Millisecond
)

// Generation tells the stores of a cluster apart: one that was restored from a snapshot, or begun again by a survivor, is another one than before. The zero Generation is a cluster's first store.
type Generation struct {
	Number uint64 `json:"number"`
	ID     []byte `json:"id,omitempty"`
}

func (g Generation) String() string {
	return "generation " + consensusv1.ShowGeneration(g.Number, g.ID)
}

func (g Generation) is(other Generation) bool {
	return g.Number == other.Number && bytes.Equal(g.ID, other.ID)
}

// StoreChange is what the node does about a curator whose store is another one than that which the node follows.
type StoreChange struct {
	// Before is what the node follows, or has followed so far, and Offered is that of the curator.
	Before, Offered Generation
	// Curator is the curator's address.
	Curator string
	// Refused is why the node does not follow it; empty: it does, from now on.
	Refused string
}

// readGeneration returns what the node follows; nil: nothing yet.
func readGeneration(path string) (*Generation, error) {
	if path == "" {
		return nil, nil
	}
	generation := new(Generation)
	switch err := storage.ReadDocument(path, generationVersion, generation); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("cluster: the file of the store's generation that this node follows, %s, cannot be used: the node follows the next one that it hears of: %w", path, err)
	}
	return generation, nil
}

// follows keeps to the store that this node follows. It refuses what a curator of another one says: of an earlier one always, and of a later one as long as there is contact, or has been a moment
// ago, to a curator of this one. A quorum of this one is alive then, and the other was begun by mistake. Without, the node follows the other one from then on. A node that has never heard of any
// follows the first.
func (s *session) follows(response *clusterv1.WatchResponse) error {
	offered := Generation{Number: response.GetStoreGeneration(), ID: response.GetStoreGenerationId()}
	before := s.generation.Load()
	if before != nil && before.is(offered) {
		return nil
	}
	if err := s.heeds(offered, response.GetStoreRecovered()); err != nil {
		s.refuse(err)
		return err
	}
	if s.config.Generation != "" {
		if err := storage.WriteDocument(s.config.Generation, generationVersion, offered, 0o600); err != nil {
			return fmt.Errorf("cannot save that this node follows %s of the store: %w", offered, err)
		}
	}
	s.generation.Store(&offered)
	if before != nil {
		s.tell(StoreChange{Before: *before, Offered: offered, Curator: s.to.address})
	}
	return nil
}

// heeds returns why the node does not believe the curator of a store; nil: it does.
func (s *session) heeds(offered Generation, recovered bool) error {
	before := s.generation.Load()
	if before == nil || before.is(offered) {
		return nil
	}
	refusal := s.refuses(*before, offered, recovered)
	if refusal == "" {
		return nil
	}
	s.tell(StoreChange{Before: *before, Offered: offered, Curator: s.to.address, Refused: refusal})
	return errors.New(refusal)
}

// refuses returns why the node does not follow another store; empty: it does.
func (s *session) refuses(before, offered Generation, recovered bool) string {
	what := fmt.Sprintf("the curator at %s serves %s of the cluster's store, and this node follows %s", s.to.address, offered, before)
	if offered.Number < before.Number {
		return what + ", which was begun later: the curator's node is to come to that store, as a member of a former one does by itself when it reaches the others"
	}
	if recovered && s.to.own {
		return "" // the member of this node has become the only one, or has joined that one
	}
	lost := s.lost.Load()
	after := followAfter
	if recovered && !s.had.Load() && offered.Number > before.Number {
		after = recoveredAfter
	}
	if contact, _ := s.contact.Get(); !contact.OK && lost != nil && time.Since(*lost) >= after {
		return ""
	}
	if offered.Number == before.Number {
		return what + ": the store was begun again twice, and there are two now; keep one, delete the nodes of the other from it, and have these join it with new keys"
	}
	return what + ", of which a majority may be alive: stop the node that serves the other one if it is; otherwise this node follows that soon"
}

// tell tells of a change once.
func (s *session) tell(change StoreChange) {
	if told := s.told.Swap(&change); told != nil && told.Refused == change.Refused && told.Offered.is(change.Offered) {
		return
	}
	if change.Refused != "" {
		s.config.Log.Error("the curator of another store is refused", "reason", change.Refused)
	} else {
		s.config.Log.Warn("this node follows another store of its cluster from now on", "store", change.Offered, "before", change.Before, "curator", change.Curator)
	}
	if s.config.StoreChanged != nil {
		s.config.StoreChanged(change)
	}
}
