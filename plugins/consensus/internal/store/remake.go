package store

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/storage/datadir"

	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
	"github.com/reeveproject/reeve/plugins/consensus/internal/steps"
	"github.com/reeveproject/reeve/plugins/consensus/internal/zaplog"
	"github.com/reeveproject/reeve/sdk/checkpoint"
)

// remadeDirectory is where the files of a member are that takes the place of the one whose data they are made of. They are whole if the marker names that member.
func remadeDirectory(directory, member string) string { return etcdDirectory(directory) + "-" + member }

// remadeMember is the ID of the member that a recovery makes.
func (s *Store) remadeMember(promise *Promise) string {
	return peers.FormatMember(uint64(membership.NewMember(s.plan.NodeID, types.MustNewURLs([]string{s.remadeURL()}), s.remadeToken(promise), nil).ID))
}

func (s *Store) remadeURL() string { return "unix://" + s.plan.NodeID }

func (s *Store) remadeToken(promise *Promise) string { return s.plan.ClusterID + "/" + promise.ID }

// remake makes a new member of the data of one that was made the only one and has stopped. Its revision is ahead of all that the lost members can have written: whoever has seen that, and watches from there on, is told to read
// everything again. When the marker names it, it is the member.
func (s *Store) remake(promise *Promise) error {
	member := s.remadeMember(promise)
	files, url := remadeDirectory(s.directory, member), s.remadeURL()
	err := checkpoint.Around(steps.RemakeMember, func() error {
		if err := os.RemoveAll(files); err != nil { // of an attempt that was killed
			return err
		}
		err := guard(func() error {
			return snapshot.NewV3(zaplog.New(s.log)).Restore(snapshot.RestoreConfig{
				SnapshotPath: datadir.ToBackendFileName(etcdDirectory(s.directory)), SkipHashCheck: true, Name: s.plan.NodeID, OutputDataDir: files, PeerURLs: []string{url},
				InitialCluster: s.plan.NodeID + "=" + url, InitialClusterToken: s.remadeToken(promise), RevisionBump: revisionBump, MarkCompacted: true,
			})
		})
		if err != nil {
			return err
		}
		return syncMember(files, s.directory)
	})
	if err != nil {
		return fmt.Errorf("make a new member of the data of member %s: %w", s.marker.MemberID, err)
	}
	generation := s.Generation()
	next := *s.marker
	next.MemberID, next.Generation, next.GenerationID = member, generation.Number, hex.EncodeToString(generation.ID)
	if err := next.write(s.directory); err != nil {
		return fmt.Errorf("write the marker of the store: %w", err)
	}
	s.marker = &next
	return nil
}

// adoptRemade puts the files that were made anew for the member in the place of those that they were made of. If that was done before, nothing happens.
func adoptRemade(directory, member string) error {
	remade := remadeDirectory(directory, member)
	if _, err := os.Lstat(remade); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return checkpoint.Around(steps.AdoptRemade, func() error {
		if err := os.RemoveAll(etcdDirectory(directory)); err != nil {
			return err
		}
		if err := os.Rename(remade, etcdDirectory(directory)); err != nil {
			return err
		}
		return syncDirectory(directory)
	})
}
