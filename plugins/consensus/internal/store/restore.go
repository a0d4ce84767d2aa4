package store

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"

	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
	"github.com/reeveproject/reeve/plugins/consensus/internal/steps"
	"github.com/reeveproject/reeve/plugins/consensus/internal/zaplog"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/sdk/checkpoint"
)

const (
	// revisionBump is by how much the revision of a restored store is ahead of that of the snapshot at least: by more than the former store can have written since. No watch goes on where it was, and no
	// client sees a revision that is smaller than one that it knows.
	revisionBump = 1_000_000_000
	// revisionsPerSecond are added for the time since the snapshot was taken: more than a store writes, so that stores that were restored from it one after the other have no revision in common.
	revisionsPerSecond = 1000
)

// bumpFor is by how much the revision of a store is ahead that is restored now of a snapshot.
func bumpFor(taken, now time.Time) uint64 {
	return revisionBump + revisionsPerSecond*uint64(max(now.Unix()-taken.Unix(), 0))
}

// restores reports whether the member is being made of a snapshot.
func (s *Store) restores() bool { return s.plan.Restored && s.marker.Phase == forming }

// come waits until the member serves, and has the CA of the peers be the store's. Whoever was in the former store is not to reach one that is being restored, so that listens for others only when
// nothing of the former is left.
func (s *Store) come(ctx context.Context, made *peers.Authority) error {
	if s.restores() {
		for _, step := range []func(context.Context) error{
			s.awaitService, s.beginRestored, func(ctx context.Context) error { return s.shareAuthority(ctx, made) },
		} {
			if err := step(ctx); err != nil {
				return err
			}
		}
		return s.peering.start()
	}
	if err := s.adoptAuthority(); err != nil {
		return err
	}
	s.introduce(s.others.get())
	if err := s.peering.start(); err != nil {
		return err
	}
	if err := s.awaitService(ctx); err != nil {
		return err
	}
	return s.shareAuthority(ctx, made)
}

// layRestored makes etcd's files of the snapshot that was received.
func (s *Store) layRestored() error {
	if s.config.Waiting != nil {
		s.config.Waiting("the member is being made of a snapshot")
	}
	manifest, err := received(s.directory, s.plan)
	if err != nil {
		return err
	}
	address := "unix://" + s.plan.NodeID
	return checkpoint.Around(steps.LayRestored, func() error {
		err := guard(func() error {
			return snapshot.NewV3(zaplog.New(s.log)).Restore(snapshot.RestoreConfig{
				SnapshotPath: receivedDatabase(s.directory), Name: s.plan.NodeID, OutputDataDir: etcdDirectory(s.directory), PeerURLs: []string{address},
				InitialCluster: s.plan.NodeID + "=" + address, InitialClusterToken: s.plan.ClusterID, RevisionBump: bumpFor(manifest.Time, time.Now()), MarkCompacted: true,
			})
		})
		if err != nil {
			return fmt.Errorf("make the member of the snapshot: %w", err)
		}
		return nil
	})
}

// generationIDSize is the size of the ID of a generation, in bytes.
const generationIDSize = 16

// beginRestored has the restored data be a store of its own.
func (s *Store) beginRestored(ctx context.Context) error {
	manifest, err := received(s.directory, s.plan)
	if err != nil {
		return err
	}
	begun := &consensusv1.StoreGeneration{
		Id: make([]byte, generationIDSize), Kind: consensusv1.StoreGenerationKind_STORE_GENERATION_KIND_RESTORED, Revision: manifest.Revision, Taken: manifest.Time.Unix(),
	}
	if _, err := rand.Read(begun.Id); err != nil {
		return err
	}
	if err := s.takeBackAlarms(ctx); err != nil {
		return err
	}
	if err := s.beginGeneration(ctx, begun); err != nil {
		return err
	}
	s.log.Info("the store begins a new generation of a snapshot", "generation", begun.Number, "revision", begun.Revision, "taken", manifest.Time)
	return s.refreshGeneration()
}
