package store

import "github.com/reeveproject/reeve/plugins/consensus/internal/peers"

// Outgoing is how the member reaches the others.
func (s *Store) Outgoing() *peers.Outgoing { return s.peering.outgoing }
