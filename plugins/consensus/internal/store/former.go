package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/etcd/server/v3/storage/wal"

	"github.com/reeveproject/reeve/plugins/consensus/internal/steps"
	"github.com/reeveproject/reeve/sdk/checkpoint"
)

// formerDirectory is where the data of the last member is that was removed. Nothing reads it: it is kept for people. It goes with the role's directory, or when the data of another member is put aside.
func formerDirectory(directory string) string { return filepath.Join(directory, "former") }

// replace is for a member that the store has removed, and that was halted. If it had data of its own, that is put aside, and the marker is that of a new member, which is to be started; false: it
// had none, and the next call of Open goes on.
func (s *Store) replace() (again bool, err error) {
	switch {
	case s.marker.Phase != joining:
		s.log.Warn("the store has removed this node's member; its data is put aside, and a new member joins the store", "member", s.marker.MemberID, "data", formerDirectory(s.directory))
		if err := putMark(s.directory, s.marker); err != nil {
			return false, err
		}
		s.marker, err = joinAnew(s.directory, s.plan, s.marker)
	case s.marker.Former != "": // it was given up before it had joined
		if err := removeMember(s.directory); err != nil {
			return false, err
		}
		s.marker, err = beginJoin(s.directory, s.plan, s.marker.Former)
		return false, err
	default:
		return false, retire(s.directory, s.marker)
	}
	s.others.set(nil)
	s.damage = nil
	if err == nil && s.config.Waiting != nil {
		s.config.Waiting(rejoining + "the former one was removed, and its data was put aside in " + formerDirectory(s.directory))
	}
	return err == nil, err
}

func (s *Store) wasRemoved(err error) bool {
	return errors.Is(err, ErrRemoved) || s.etcd != nil && s.etcd.Server.IsIDRemoved(uint64(s.etcd.Server.MemberID()))
}

// end closes a member that could not be started. One that was removed from the store of a node that is to have none is none any more.
func (s *Store) end(err error) error {
	former := s.marker.Former
	if !s.halt() {
		return errors.Join(err, s.unstopped())
	}
	defer s.lock.Close()
	switch {
	case former != "" && errors.Is(err, ErrUnwanted):
		if err := retire(s.directory, s.marker); err != nil {
			return err
		}
		return noneAnyMore(s.directory, s.plan, former)
	case former != "" && errors.Is(err, ErrWaiting):
		return fmt.Errorf("%s%w", rejoining, err)
	}
	return err
}

// rejoining begins what is told of a member that joins in the place of one that was removed.
const rejoining = "rejoining the store as a new member: "

// checkRejoin refuses to begin to join in the place of a former member where its data, which is kept, and that of the new member do not fit on the disk together.
func (s *Store) checkRejoin() error {
	former := formerDirectory(s.directory)
	database, err := os.Stat(datadir.ToBackendFileName(filepath.Join(former, "etcd")))
	if s.marker.Phase != joining || s.marker.Former == "" || err != nil || wal.Exist(datadir.ToWALDir(etcdDirectory(s.directory))) {
		return nil
	}
	free, _, err := s.freeSpace(s.directory)
	// The data of the other members is taken to be as large as this node's was. The log begins with two files.
	if need := database.Size() + 2*wal.SegmentSizeBytes; err == nil && free < need {
		return fmt.Errorf("%w: its volume has %s free (%d bytes), and the data of the store needs about %s (%d bytes): make room on it, or move %s, "+
			"which has the data of the former member, to another disk", ErrWaiting, spell(free), free, spell(need), need, former)
	}
	return nil
}

// putMark marks a member as one whose data is to be put aside.
func putMark(directory string, found *marker) error {
	gone := *found
	gone.Phase, gone.Former = replaced, ""
	if err := gone.write(directory); err != nil {
		return fmt.Errorf("write the marker of the store: %w", err)
	}
	return nil
}

// joinAnew puts the data of a member aside whose marker says replaced, and has a new one begin to join. After a crash it is called again.
func joinAnew(directory string, plan Plan, found *marker) (*marker, error) {
	if err := putAside(directory); err != nil {
		return nil, fmt.Errorf("put the data of the former member %s aside: %w", found.MemberID, err)
	}
	if err := removeMember(directory); err != nil { // its credentials
		return nil, err
	}
	return beginJoin(directory, plan, found.MemberID)
}

// putAside moves etcd's files to formerDirectory, in the place of older ones. If they were moved before, nothing happens.
func putAside(directory string) error {
	files, former := etcdDirectory(directory), formerDirectory(directory)
	if _, err := os.Lstat(files); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return checkpoint.Around(steps.PutAside, func() error {
		if err := os.RemoveAll(former); err != nil {
			return err
		}
		if err := os.Mkdir(former, 0o700); err != nil {
			return err
		}
		if err := os.Rename(files, filepath.Join(former, filepath.Base(files))); err != nil {
			return err
		}
		if err := syncDirectory(former); err != nil {
			return err
		}
		return syncDirectory(directory)
	})
}
