package store

import (
	"errors"
	"testing"
)

// TestRoomForASnapshot holds that a snapshot is refused before it is received where the member that is made of it would fill the volume: with its database twice, its log, and what must stay free.
func TestRoomForASnapshot(t *testing.T) {
	const size, all = 100 << 20, 1000 << 20
	const needed = 2*size + 128<<20 + 20<<20
	if err := hasRoom(size, needed, all); err != nil {
		t.Error(err)
	}
	if err := hasRoom(size, needed-1, all); !errors.Is(err, ErrUnfit) {
		t.Errorf("one byte too little: %v", err)
	}
}
