package store

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
	"github.com/reeveproject/reeve/plugins/consensus/internal/steps"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/sdk/checkpoint"
)

// Problem says that what is on disk does not fit what was asked for. Nothing was changed.
type Problem struct {
	Kind    consensusv1.FormProblemKind
	Message string
}

func (p *Problem) Error() string { return p.Message }

func missing(format string, arguments ...any) *Problem {
	return &Problem{Kind: consensusv1.FormProblemKind_FORM_PROBLEM_KIND_STORE_MISSING, Message: fmt.Sprintf(format, arguments...)}
}

func foreign(format string, arguments ...any) *Problem {
	return &Problem{Kind: consensusv1.FormProblemKind_FORM_PROBLEM_KIND_STORE_FOREIGN, Message: fmt.Sprintf(format, arguments...)}
}

const (
	wayOutOfMissing = "put the directory back from a backup of this node, or give the node up and make a new one; " +
		"a store is never made again for a cluster that has one"
	wayOutOfForeign = "put this node's own data directory back, or move the foreign one away if the node is to become another cluster's"
)

// etcdDirectory is where etcd keeps its files.
func etcdDirectory(directory string) string { return filepath.Join(directory, "etcd") }

// peerDirectory is where the member keeps its key and certificate for the others.
func peerDirectory(directory string) string { return filepath.Join(directory, "peer") }

// prepare looks at what is on disk and returns its marker. If the marker's phase is forming, etcd's directory is absent and a store may be
// made; if it is complete, etcd's files are there; if it is joining, etcd's directory may hold anything that a join has begun.
func prepare(directory string, plan Plan) (*marker, error) {
	content, err := readMarker(directory)
	if errors.Is(err, fs.ErrNotExist) {
		return prepareEmpty(directory, plan)
	}
	if err != nil {
		return nil, fmt.Errorf("read the marker of the store: %w", err)
	}
	found, err := parseMarker(content)
	switch {
	case err != nil:
		return nil, foreign("it cannot be told whose store is in %s: %s: %v; %s", directory, markerPath(directory), err, wayOutOfForeign)
	case found.ClusterID != plan.ClusterID || found.NodeID != plan.NodeID:
		return nil, foreign("the store in %s belongs to node %s of cluster %s, not to node %s of cluster %s; %s",
			directory, found.NodeID, found.ClusterID, plan.NodeID, plan.ClusterID, wayOutOfForeign)
	case found.Phase == complete:
		if err := adoptRemade(directory, found.MemberID); err != nil {
			return nil, err
		}
		return found, checkFiles(directory, plan)
	case found.Phase == removed:
		return prepareAgain(directory, plan, found)
	case found.Phase == replaced:
		return joinAnew(directory, plan, found)
	case found.Phase == joining && (plan.Join || found.Former != ""):
		return found, nil
	case found.Phase == joining:
		return nil, missing("the member of node %s in %s was begun to join the store of cluster %s but has never finished; %s",
			plan.NodeID, directory, plan.ClusterID, wayOutOfMissing)
	case !plan.New && !plan.Join && !plan.Restored:
		return nil, missing("the making of the store of cluster %s in %s was begun but never finished; %s", plan.ClusterID, directory, wayOutOfMissing)
	}
	// A crash may have left etcd's log without its first entries, from which etcd would never elect a leader. Nobody has seen this store: begin again.
	if err := removeMember(directory); err != nil {
		return nil, err
	}
	if plan.Join {
		return beginJoin(directory, plan, "")
	}
	return found, checkReceived(directory, plan)
}

// checkReceived refuses to restore a store without a snapshot.
func checkReceived(directory string, plan Plan) error {
	if !plan.Restored {
		return nil
	}
	_, err := received(directory, plan)
	return err
}

func prepareEmpty(directory string, plan Plan) (*marker, error) {
	switch _, err := os.Lstat(etcdDirectory(directory)); {
	case err == nil:
		return nil, foreign("it cannot be told whose store is in %s: the marker %s is missing; %s", directory, markerPath(directory), wayOutOfForeign)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("look for a store: %w", err)
	}
	if plan.Join {
		return beginJoin(directory, plan, "")
	}
	if err := checkReceived(directory, plan); err != nil {
		return nil, err
	}
	if !plan.New && !plan.Restored {
		return nil, missing("the store of cluster %s is missing: there is nothing in %s; %s", plan.ClusterID, directory, wayOutOfMissing)
	}
	begun := &marker{Version: markerVersion, ClusterID: plan.ClusterID, NodeID: plan.NodeID, Phase: forming}
	if err := begun.write(directory); err != nil {
		return nil, fmt.Errorf("write the marker of the store: %w", err)
	}
	return begun, nil
}

// prepareAgain is for the directory of a member that was removed: only a new one may come there, by joining.
func prepareAgain(directory string, plan Plan, found *marker) (*marker, error) {
	if err := removeMember(directory); err != nil {
		return nil, err
	}
	if !plan.Join {
		return nil, noneAnyMore(directory, plan, found.MemberID)
	}
	return beginJoin(directory, plan, "")
}

// noneAnyMore says what to do on the node of a member that was removed.
func noneAnyMore(directory string, plan Plan, member string) *Problem {
	kept := "it has no data here"
	if _, err := os.Lstat(formerDirectory(directory)); err == nil {
		kept = "the data of this node's former member is kept in " + formerDirectory(directory) + ": look whether it has writes that the store lacks before you have it deleted"
	}
	return missing("member %s of node %s was removed from the store of cluster %s; %s; if the removal was intended, there is nothing else to do; to make the node a member again, "+
		"remove the role from it if it still has it (`reeve node role remove %[2]s ROLE`) and add it again (`reeve node role add %[2]s ROLE`): it then joins as a new member",
		member, plan.NodeID, plan.ClusterID, kept)
}

// beginJoin chooses the ID of a member that is to join, in the place of a former one if that is not empty. It tells a join that goes on from another one, whose data was lost: no two have the same.
func beginJoin(directory string, plan Plan, former string) (*marker, error) {
	id, err := peers.NewMember()
	if err != nil {
		return nil, fmt.Errorf("choose an ID for the member: %w", err)
	}
	begun := &marker{Version: markerVersion, ClusterID: plan.ClusterID, NodeID: plan.NodeID, Phase: joining, MemberID: peers.FormatMember(id), Former: former}
	if err := begun.write(directory); err != nil {
		return nil, fmt.Errorf("write the marker of the store: %w", err)
	}
	return begun, nil
}

// retire ends a member that the store has removed: the marker says so first, so that a crash leaves nothing that would be taken for a member.
// What was put aside stays: it may be the only copy of writes that were acknowledged.
func retire(directory string, found *marker) error {
	gone := *found
	gone.Phase, gone.MemberID, gone.Former = removed, cmp.Or(found.Former, found.MemberID), ""
	if err := gone.write(directory); err != nil {
		return fmt.Errorf("write the marker of the store: %w", err)
	}
	return removeMember(directory)
}

// removeMember deletes the data and the credentials of the member.
func removeMember(directory string) error {
	return checkpoint.Around(steps.DeleteMember, func() error {
		remade, _ := filepath.Glob(remadeDirectory(directory, "*")) // its error only says that the pattern is none
		for _, path := range append(remade, etcdDirectory(directory), peerDirectory(directory)) {
			if err := os.RemoveAll(path); err != nil {
				return fmt.Errorf("delete the former member's data: %w", err)
			}
		}
		return syncDirectory(directory)
	})
}

// finish marks the store as complete. From then on it must never be lost, so the directories that etcd made are synced first, and the one
// that holds etcd's own: after a crash of the machine a complete marker beside no files would mean a store that was lost. etcd itself syncs its files.
func finish(directory string, begun *marker, member string) (*marker, error) {
	if err := syncMember(etcdDirectory(directory), directory); err != nil {
		return nil, fmt.Errorf("sync the store's directories: %w", err)
	}
	done := *begun
	done.Phase, done.MemberID, done.Former = complete, member, ""
	if err := done.write(directory); err != nil {
		return nil, fmt.Errorf("write the marker of the store: %w", err)
	}
	return &done, nil
}

// syncMember syncs the directories that etcd has made for its files, and the one that holds them.
func syncMember(files, directory string) error {
	for _, made := range []string{datadir.ToSnapDir(files), datadir.ToWALDir(files), datadir.ToMemberDir(files), files, directory} {
		if err := syncDirectory(made); err != nil {
			return err
		}
	}
	return nil
}

// checkFiles refuses a complete store whose files are gone: etcd, finding no log, would quietly begin a new one.
func checkFiles(directory string, plan Plan) error {
	files := etcdDirectory(directory)
	if !wal.Exist(datadir.ToWALDir(files)) {
		return missing("the store of cluster %s is missing: there is no log in %s; %s", plan.ClusterID, datadir.ToWALDir(files), wayOutOfMissing)
	}
	if _, err := os.Stat(datadir.ToBackendFileName(files)); errors.Is(err, fs.ErrNotExist) {
		return missing("the store of cluster %s is missing: there is no database %s; %s", plan.ClusterID, datadir.ToBackendFileName(files), wayOutOfMissing)
	}
	return nil
}

// lock keeps a second process off the data directory until the returned file is closed.
func lock(directory string) (*os.File, error) {
	path := filepath.Join(directory, "lock")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the data directory: %w", err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		file.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("another process uses the store in %s; end it first", directory)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return file, nil
}
