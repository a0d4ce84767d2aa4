package store

import "context"

// ClusterUser is the user that is there before anybody else uses the store, and is not bounded.
func (s *Store) ClusterUser() string { return s.plan.ClusterUser }

// MostRead is the most that a request of a user may read, as far as that is known without a look into the store.
func (s *Store) MostRead(user string, request any) int64 { return s.usage.MostRead(user, request) }

// Reads is what a request of a user reads as the store is now; beyond most it is not added up further.
func (s *Store) Reads(ctx context.Context, user string, request any, most int64) (int64, error) {
	return s.usage.Reads(ctx, user, request, most)
}

// Visited is what a request has counted for the keys that etcd passed, by its answer; nil: by the most that they can be.
func (s *Store) Visited(user string, request, answer any) int64 {
	return s.usage.Visited(user, request, answer)
}

// Beat is what it counts for the pace of what is read that a lease is kept alive or told of with its keys; 0: one that is told of without them.
func (s *Store) Beat(lease int64) int64 { return s.usage.Beat(lease) }

// Changes is how many changes history has of a key of a user.
func (s *Store) Changes(key []byte) int64 { return s.usage.Changes(key) }

// HistorySince is how many bytes of history etcd reads for a watch of a user from a revision on; with previous values, it counts one more for each revision that etcd walks to find these.
func (s *Store) HistorySince(user string, revision int64) (read, walked int64) {
	if revision < s.etcd.Server.KV().FirstRev() {
		return 0, 0 // etcd says at once that it is compacted
	}
	return s.usage.HistorySince(user, revision)
}
