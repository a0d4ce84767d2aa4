package store

import (
	"go.uber.org/zap"

	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
)

// Outgoing is how the member reaches the others.
func (s *Store) Outgoing() *peers.Outgoing { return s.peering.outgoing }

// Trim notes a snapshot in a long log.
func Trim(directory string) error { return trim(zap.NewNop(), directory) }
