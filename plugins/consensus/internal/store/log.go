package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/consensus/internal/zaplog"
)

// maxSegments is how many files of the log etcd may have to read into memory when it starts: 64 MiB each, by default.
const maxSegments = 4

// trimLog sees to it that a start takes little memory, whatever the log holds, and that etcd has a snapshot to start from. etcd reads into memory all that the log has since the last snapshot, although what is in the
// database already needs no repetition. So where that is much, a snapshot is noted in the log that is as new as the database, as etcd does itself every so many entries. Nothing is
// deleted here; etcd deletes the files that are older than the snapshot.
//
// A log without any snapshot gets one, too. From such a log etcd 3.7 applies everything at once, lets go of its first entry in memory, and may then campaign before raft has taken note of what was applied: raft looks for
// changes of the members from that first entry on, and panics since it is gone. It was seen once, on a busy machine.
//
// What cannot be read is left to etcd, which repairs it or says what is wrong with it.
func trimLog(log hclog.Logger, directory string) {
	err := guard(func() error { return trim(zaplog.New(log), directory) })
	if err != nil {
		log.Warn("the store's log could not be shortened before the start, which may take much memory", "error", err)
	}
}

func trim(log *zap.Logger, directory string) error {
	walDirectory := datadir.ToWALDir(directory)
	last := lastSnapshot(datadir.ToSnapDir(directory))
	files, err := segmentsSince(walDirectory, last)
	if err != nil || len(files) == 0 || last > 0 && len(files) <= maxSegments {
		return err
	}
	snapshot, err := readApplied(log, datadir.ToBackendFileName(directory))
	if err != nil {
		return err
	}
	if newer, err := placeIn(files, last, snapshot); err != nil || !newer {
		return err
	}
	err = note(log, walDirectory, snapshot)
	if errors.Is(err, io.ErrUnexpectedEOF) && wal.Repair(log, walDirectory) { // the last record was cut off; etcd does the same
		err = note(log, walDirectory, snapshot)
	}
	return err
}

// lastSnapshot is the index of the last snapshot that etcd has made; 0: none.
func lastSnapshot(directory string) (last uint64) {
	names, _ := filepath.Glob(filepath.Join(directory, "*.snap"))
	for _, name := range names {
		var term, index uint64
		if n, err := fmt.Sscanf(filepath.Base(name), "%016x-%016x.snap", &term, &index); err == nil && n == 2 {
			last = max(last, index)
		}
	}
	return last
}

// segmentsSince are the files of the log that hold what follows an index, in order.
func segmentsSince(directory string, index uint64) ([]string, error) {
	names, err := filepath.Glob(filepath.Join(directory, "*.wal"))
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	first := 0
	for n, name := range names {
		var sequence, from uint64
		if _, err := fmt.Sscanf(filepath.Base(name), "%016x-%016x.wal", &sequence, &from); err != nil {
			return nil, fmt.Errorf("the file %s of the log has another name than etcd gives: %w", name, err)
		}
		if from <= index {
			first = n
		}
	}
	return names[first:], nil
}

// readApplied reads how far the database is, and which members there are by then.
func readApplied(log *zap.Logger, path string) (*walpb.Snapshot, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, err
	}
	database := backend.NewDefaultBackend(log, path)
	defer database.Close()
	index, term := schema.ReadConsistentIndex(database.ReadTx())
	members, _ := schema.NewMembershipBackend(log, database).MustReadMembersFromBackend()
	state := &raftpb.ConfState{}
	for _, member := range members {
		if member.IsLearner {
			state.Learners = append(state.Learners, uint64(member.ID))
		} else {
			state.Voters = append(state.Voters, uint64(member.ID))
		}
	}
	if len(state.Voters) == 0 {
		return nil, errors.New("the database names no members")
	}
	return &walpb.Snapshot{Index: &index, Term: &term, ConfState: state}, nil
}

// placeIn moves a snapshot to where the log says that it may be: to nothing that is not known to be agreed upon, and with the term that it had. It reports whether it is newer than
// the last one: the database of a member that was killed while it took over that of the leader is older than the snapshot that came with it, before which the log has a gap.
func placeIn(files []string, last uint64, snapshot *walpb.Snapshot) (newer bool, err error) {
	var readers []fileutil.FileReader
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			return false, err
		}
		defer file.Close()
		readers = append(readers, fileutil.NewFileReader(file))
	}
	// terms are where each term began. What was not agreed upon may be written again, with a later term.
	type beginning struct{ index, term uint64 }
	var terms []beginning
	committed := uint64(0)
	decoder, record := wal.NewDecoder(readers...), &walpb.Record{}
	for err = decoder.Decode(record); err == nil; err = decoder.Decode(record) {
		switch record.GetType() {
		case wal.CrcType:
			if crc := decoder.LastCRC(); crc != 0 && record.Validate(crc) != nil {
				return false, wal.ErrCRCMismatch
			}
			decoder.UpdateCRC(record.GetCrc())
		case wal.SnapshotType:
			noted := &walpb.Snapshot{}
			if err := proto.Unmarshal(record.Data, noted); err != nil {
				return false, fmt.Errorf("read a snapshot that is noted in the log: %w", err)
			}
			last = max(last, noted.GetIndex())
		case wal.StateType:
			committed = wal.MustUnmarshalState(record.Data).GetCommit()
		case wal.EntryType:
			entry := wal.MustUnmarshalEntry(record.Data)
			for len(terms) > 0 && terms[len(terms)-1].index >= entry.GetIndex() {
				terms = terms[:len(terms)-1]
			}
			if len(terms) == 0 || terms[len(terms)-1].term != entry.GetTerm() {
				terms = append(terms, beginning{entry.GetIndex(), entry.GetTerm()})
			}
		}
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false, fmt.Errorf("read the log: %w", err)
	}
	index := min(snapshot.GetIndex(), committed)
	if index <= last {
		return false, nil
	}
	for _, began := range slices.Backward(terms) {
		if began.index <= index {
			snapshot.Index, snapshot.Term = &index, &began.term
			return true, nil
		}
	}
	return false, fmt.Errorf("the log of %s does not have entry %d", strings.Join(files, ", "), index)
}

// note writes a snapshot to the end of the log.
func note(log *zap.Logger, directory string, snapshot *walpb.Snapshot) error {
	opened, err := wal.Open(log, directory, snapshot)
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	defer opened.Close()
	// To write at the end, all of it has to be read; what is older than the snapshot is not kept.
	if _, _, _, err := opened.ReadAll(); err != nil && !errors.Is(err, wal.ErrSnapshotNotFound) {
		return fmt.Errorf("read the log: %w", err)
	}
	if err := opened.SaveSnapshot(snapshot); err != nil {
		return fmt.Errorf("write to the log: %w", err)
	}
	return nil
}
