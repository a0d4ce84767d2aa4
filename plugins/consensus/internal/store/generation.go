package store

import (
	"bytes"
	"encoding/hex"
	"fmt"

	"google.golang.org/protobuf/proto"

	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// Generation tells a store from the others of its cluster that were begun again from what a former one had.
type Generation struct {
	Number uint64
	// ID is empty for the first one.
	ID []byte
}

// String is how people are told of it.
func (g Generation) String() string {
	return consensusv1.ShowGeneration(g.Number, g.ID)
}

// Same reports whether both are of the same store.
func (g Generation) Same(other Generation) bool {
	return g.Number == other.Number && bytes.Equal(g.ID, other.ID)
}

// Replaces reports whether data of the other one is given up for this one: never for an earlier one.
func (g Generation) Replaces(other Generation) bool {
	return g.Number >= other.Number && !g.Same(other)
}

// behind reports whether the node follows a store that replaces the member's, and that its member is to come to.
func (s *Store) behind() bool {
	if s.config.Follows == nil {
		return false
	}
	follows, known := s.config.Follows()
	return known && follows.Replaces(s.Generation())
}

// generationKey is where the StoreGeneration lies.
func generationKey(clusterUser string) string {
	return consensusv1.UserPrefix(clusterUser) + consensusv1.StoreGenerationKey
}

// Generation is that of the store of which the local member has the data. A member that has not taken over all of the data yet knows it from those whom it has joined.
func (s *Store) Generation() Generation {
	if known := s.generation.Load(); known != nil {
		return *known
	}
	return Generation{}
}

// refreshGeneration reads it from what is stored.
func (s *Store) refreshGeneration() error {
	if s.closing() {
		return nil
	}
	found := s.marker.generation()
	stored, _, err := s.stored(generationKey(s.plan.ClusterUser))
	if err != nil {
		return err
	}
	document := &consensusv1.StoreGeneration{}
	if err := proto.Unmarshal(stored, document); err != nil {
		return fmt.Errorf("read the generation of the store: %w", err)
	}
	if document.GetNumber() >= found.Number && len(document.GetId()) > 0 {
		found = Generation{Number: document.Number, ID: document.Id}
	}
	s.generation.Store(&found)
	return nil
}

// joined keeps the generation of the store that has given the member its place, before the member has any of its data.
func (s *Store) joined(generation Generation) error {
	s.generation.Store(&generation)
	if s.marker.generation().Same(generation) {
		return nil
	}
	next := *s.marker
	next.Generation, next.GenerationID = generation.Number, hex.EncodeToString(generation.ID)
	if err := next.write(s.directory); err != nil {
		return fmt.Errorf("write the marker of the store: %w", err)
	}
	s.marker = &next
	return nil
}
