package store

import (
	"crypto/sha256"
	"slices"

	"go.uber.org/zap"

	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
)

// Outgoing is how the member reaches the others.
func (s *Store) Outgoing() *peers.Outgoing { return s.peering.outgoing }

// RecentBytes are those of the log that the member has in memory.
func (s *Store) RecentBytes() (sum int64) {
	log, err := recentLog(s.etcd.Server)
	if err != nil {
		return -1
	}
	last, _ := log.LastIndex()
	entries, _ := (&recent{log: log}).until(min(s.Applied(), last), 0)
	for _, entry := range entries {
		sum += int64(len(entry.GetData()))
	}
	return sum
}

// Compacting reports whether a compaction is under way.
func (s *Store) Compacting() bool { return s.compacting() }

// Trim notes a snapshot in a long log.
func Trim(directory string) error { return trim(zap.NewNop(), directory) }

// SetFreeSpace has the store believe that there is so much room on its disk.
func (s *Store) SetFreeSpace(freeSpace func() (free, all int64)) {
	s.freeSpace = func(string) (int64, int64, error) {
		free, all := freeSpace()
		return free, all, nil
	}
}

// SpoolPath is where a snapshot's file is for a moment.
var SpoolPath = spoolPath

// MarginEvery is after how many bytes of a snapshot it is looked again whether there is room.
const MarginEvery = marginEvery

// WithSum returns a database as etcd's snapshots are.
func WithSum(database []byte) []byte {
	sum := sha256.Sum256(database)
	return slices.Concat(database, sum[:])
}

// Hold keeps the member from having stopped.
func (s *Store) Hold() (release func()) {
	s.following.Add(1)
	return s.following.Done
}

// BumpFor is by how much the revision of a restored store is ahead.
var BumpFor = bumpFor
