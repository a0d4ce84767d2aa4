package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
)

const (
	// hashBound is how long a member may take to read all that it holds.
	hashBound = 2 * time.Minute
	// hashAgain is the pause before a member is asked again that has not applied a revision yet, hashTries how often it is asked.
	hashAgain = 200 * time.Millisecond
	hashTries = 10
)

// Hashes are those of what the members hold up to one revision, by the IDs of those that answer and have compacted their history as far as the local one: the others' could not be compared.
func (s *Store) Hashes(ctx context.Context) (map[uint64]uint32, error) {
	if s.closing() {
		return nil, errStopped
	}
	server := s.etcd.Server
	own, _, err := server.KV().HashStorage().HashByRev(server.KV().Rev())
	if err != nil {
		return nil, fmt.Errorf("hash what the local member of the store holds: %w", err)
	}
	hashes := map[uint64]uint32{uint64(server.MemberID()): own.Hash}
	credentials, err := s.files().Load()
	if err != nil {
		return hashes, nil // it has never had company
	}
	var mu sync.Mutex
	var asking sync.WaitGroup
	for _, peer := range s.otherPeers() {
		asking.Go(func() {
			hash, err := hashOf(ctx, credentials, server.Cluster().ID(), peer, own)
			if err != nil {
				s.log.Debug("what a member of the store holds cannot be compared; trying again with the next look", "node", peer.Node, "error", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			hashes[peer.ID] = hash
		})
	}
	asking.Wait()
	return hashes, ctx.Err()
}

// errCompacted says that a member has compacted its history to another revision than the local one.
var errCompacted = errors.New("its history begins at another revision than that of the local member")

func hashOf(ctx context.Context, credentials *peers.Credentials, store types.ID, peer Peer, own mvcc.KeyValueHash) (hash uint32, err error) {
	client := peers.Client(credentials, peer.ID, hashBound)
	err = errors.New("no address of it is known")
	for range hashTries {
		for _, url := range peer.URLs {
			answer, failed := etcdserver.HashByRev(ctx, store, client, url, own.Revision)
			switch {
			case failed != nil:
				err = failed
			case answer.CompactRevision != own.CompactRevision:
				return 0, errCompacted
			default:
				return answer.Hash, nil
			}
		}
		if !errors.Is(err, rpctypes.ErrFutureRev) {
			return 0, err
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(hashAgain): // it is about to apply it
		}
	}
	return 0, err
}
