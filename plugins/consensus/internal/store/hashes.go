package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"net/http"
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"

	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
)

const (
	// hashPath is below what a member is asked for its hash: etcd's own path there. etcd's own hash, at that path alone, keeps everybody from writing while it is computed.
	hashPath    = "/reeve"
	hashPattern = "GET " + hashPath + etcdserver.PeerHashKVPath
	// hashBound is how long a member may take to read all that it holds.
	hashBound = 2 * time.Minute
	// hashAgain is the pause before a member looks again whether it has applied a revision, hashTries how often it looks.
	hashAgain = 200 * time.Millisecond
	hashTries = 10
	// hashPage is after how many entries a hash looks whether it should end.
	hashPage = 1000
	// maxHashRequest bounds what is read of who asks for a hash.
	maxHashRequest = 1 << 10
)

var (
	// errCompacted says that a member has compacted its history to another revision than the local one.
	errCompacted = errors.New("its history begins at another revision than that of the local member")
	// errCompacting says that what a compaction takes away may be there or not.
	errCompacting = errors.New("its history is being compacted")
	// errGaveWay says that a hash is not computed while the database is to be rewritten, which would wait for it, and everybody for that.
	errGaveWay = errors.New("its database is about to be rewritten")
)

// Hashes are those of what the members hold up to one revision, by the IDs of those that answer and have compacted their history as far as the local one: the others' could not be compared. One member after the other
// computes its own, which takes the time of a processor and the disk: took is how long the local one read. There are none in a store of one member.
func (s *Store) Hashes(ctx context.Context) (hashes map[uint64]uint32, took time.Duration, err error) {
	if s.closing() {
		return nil, 0, errStopped
	}
	server, others := s.etcd.Server, s.otherPeers()
	if len(others) == 0 {
		return nil, 0, nil
	}
	credentials, err := s.files().Load()
	if err != nil {
		return nil, 0, fmt.Errorf("load what the other members are asked with: %w", err)
	}
	own, took, err := s.hash(ctx, server.KV().Rev())
	switch {
	case errors.Is(err, errCompacting), errors.Is(err, errGaveWay):
		s.log.Debug("what the local member of the store holds cannot be compared; trying again with the next look", "error", err)
		return nil, took, nil
	case err != nil:
		return nil, took, fmt.Errorf("hash what the local member of the store holds: %w", err)
	}
	hashes, answers := map[uint64]uint32{uint64(server.MemberID()): own.Hash}, s.Ask(ctx)
	for _, peer := range others {
		if _, answers := answers[peer.ID]; !answers {
			continue
		}
		hash, err := hashOf(ctx, credentials, server.Cluster().ID(), peer, own)
		if err != nil {
			s.log.Debug("what a member of the store holds cannot be compared; trying again with the next look", "node", peer.Node, "error", err)
			continue
		}
		hashes[peer.ID] = hash
	}
	return hashes, took, ctx.Err()
}

func hashOf(ctx context.Context, credentials *peers.Credentials, store types.ID, peer Peer, own mvcc.KeyValueHash) (hash uint32, err error) {
	client := peers.Client(credentials, peer.ID, hashBound)
	err = errors.New("no address of it is known")
	for _, url := range peer.URLs {
		answer, failed := etcdserver.HashByRev(ctx, store, client, url+hashPath, own.Revision)
		switch {
		case failed != nil:
			err = failed
		case answer.CompactRevision != own.CompactRevision:
			return 0, errCompacted
		default:
			return answer.Hash, nil
		}
	}
	return 0, err
}

// hash hashes the entries up to a revision, without those deleted ones that the last compaction may have left. It reads what was there when it began, so that nobody waits for it; etcd's own hash holds a
// lock that writers need. took is how long it read, without what it waited for.
func (s *Store) hash(ctx context.Context, revision int64) (hash mvcc.KeyValueHash, took time.Duration, err error) {
	hash.Revision = revision
	server := s.etcd.Server
	for tries := 0; server.KV().Rev() < revision; tries++ { // it is about to apply it
		if tries == hashTries {
			return hash, 0, mvcc.ErrFutureRev
		}
		select {
		case <-ctx.Done():
			return hash, 0, ctx.Err()
		case <-time.After(hashAgain):
		}
	}
	if !s.hashing.TryRLock() {
		return hash, 0, errGaveWay
	}
	defer s.hashing.RUnlock()
	database := server.Backend().Snapshot() // a transaction of bbolt, with all up to the revision: etcd's own ones have what was just committed twice, for a while
	defer database.Close()
	copied, ok := database.(interface{ Bucket([]byte) *bbolt.Bucket })
	if !ok {
		return hash, 0, errors.New("etcd's snapshot is none of bbolt")
	}
	_, finished := revisionsOf(copied)
	hash.CompactRevision = finished
	switch scheduled := mainOf(copied.Bucket(schema.Meta.Name()).Get(schema.ScheduledCompactKeyName)); {
	case finished > revision:
		return hash, 0, mvcc.ErrCompacted
	case finished != scheduled:
		return hash, 0, errCompacting
	}
	began := time.Now()
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	cursor, n := copied.Bucket(schema.Key.Name()).Cursor(), 0
	for key, value := cursor.First(); key != nil && mainOf(key) <= revision; key, value = cursor.Next() {
		if !mvcc.IsTombstone(key) || mainOf(key) > finished {
			sum.Write(key)
			sum.Write(value)
		}
		if n++; n%hashPage != 0 {
			continue
		}
		switch {
		case ctx.Err() != nil:
			return hash, time.Since(began), ctx.Err()
		case s.closing():
			return hash, time.Since(began), errStopped
		case s.pulse.rewriting.Load():
			return hash, time.Since(began), errGaveWay
		}
		if s.betweenPages != nil {
			s.betweenPages()
		}
	}
	hash.Hash = sum.Sum32()
	return hash, time.Since(began), nil
}

// serveHash tells another member the hash of what this one holds, as etcd does.
func (s *Store) serveHash(w http.ResponseWriter, r *http.Request) {
	var asked etcdserverpb.HashKVRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxHashRequest)).Decode(&asked); err != nil {
		http.Error(w, "the request cannot be read", http.StatusBadRequest)
		return
	}
	hash, _, err := s.hash(r.Context(), asked.Revision)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(&etcdserverpb.HashKVResponse{
		Header: &etcdserverpb.ResponseHeader{Revision: s.etcd.Server.KV().Rev()}, Hash: hash.Hash, CompactRevision: hash.CompactRevision, HashRevision: hash.Revision,
	})
}
