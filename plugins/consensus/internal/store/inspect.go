package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime/debug"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/proto/limits"
)

// DamagedError says that a file of the member cannot be read as etcd wrote it. It is an ErrWaiting, too: the member waits for the store to remove it, and then joins anew.
type DamagedError struct {
	// File is the file, or the directory if it cannot be told which one of it.
	File string
	// Cause is what reading it says.
	Cause error
	// Node is the one whose member it is.
	Node string
}

func (e *DamagedError) Error() string {
	say := func(cause string) string {
		return fmt.Sprintf("the data of this node's member of the store cannot be used: %s is damaged: %s; run `reeve store replace %s` if other members have a majority, otherwise `reeve store recover-quorum` on one of them; "+
			"if there is no other member, restore the cluster from a snapshot", e.File, cause, e.Node)
	}
	// It is the role's reason, of which the end, what to do, would be cut off.
	return say(limits.Cut(e.Cause.Error(), max(0, limits.Reason-len(say("")))))
}

// Unwrap implements the interface of package errors.
func (e *DamagedError) Unwrap() error { return e.Cause }

// Is implements the interface of package errors.
func (e *DamagedError) Is(target error) bool { return target == ErrWaiting }

// unreadError says that a file of the member cannot be read now, which says nothing of what is in it. It is an ErrWaiting, too: the same call may succeed later.
type unreadError struct {
	file, node string
	cause      error
}

func (e *unreadError) Error() string {
	return fmt.Sprintf("cannot read %s of the member of node %s before it starts: %v; trying again", e.file, e.node, e.cause)
}

func (e *unreadError) Unwrap() error { return e.cause }

func (e *unreadError) Is(target error) bool { return target == ErrWaiting }

// Inspect says which file of the member etcd could not use: a *DamagedError. The member does not run. Any other error says that it could not be looked. Both the log since its last snapshot and the database are read as a
// whole, as etcd does when it starts: where it finds a damaged page, some of its goroutines end the process. end is the index of the last entry in the log: etcd takes one that is damaged in its last part for one that was
// cut off by a crash, and forgets the rest.
func Inspect(ctx context.Context, directory, node string) (end uint64, err error) {
	files := etcdDirectory(directory)
	if !wal.Exist(datadir.ToWALDir(files)) {
		return 0, nil
	}
	path, err := inspectFiles(ctx, files, &end)
	switch {
	case err == nil:
		return end, nil
	case ctx.Err() != nil:
		return end, ctx.Err()
	case damages(err):
		return end, &DamagedError{File: path, Cause: err, Node: node}
	}
	return end, &unreadError{path, node, err}
}

// damages reports whether an error of reading a file says that what is in it is not what was written. The kernel says that of a disk or a file system; whatever else it says may pass, like a process that has too
// many files open. All other errors are those of who has decoded what was read.
func damages(err error) bool {
	var kernel syscall.Errno
	switch {
	case errors.As(err, &kernel):
		return kernel == unix.EIO || kernel == unix.EUCLEAN || kernel == unix.EBADMSG
	case errors.Is(err, bolterrors.ErrTimeout):
		return false // another process has the lock
	}
	return true
}

func inspectFiles(ctx context.Context, files string, end *uint64) (path string, err error) {
	path = datadir.ToWALDir(files)
	names, err := segmentsSince(path, lastSnapshot(datadir.ToSnapDir(files)))
	if err != nil {
		return path, err
	}
	for n, name := range names {
		if err := inspectSegment(ctx, name, n == len(names)-1, end); err != nil {
			return name, err
		}
	}
	path = datadir.ToBackendFileName(files)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return path, nil // a member that takes the data over has none yet; that of another one is looked for elsewhere
	}
	return path, inspectDatabase(ctx, path)
}

// inspectSegment reads one file of the log. The last record of the last one may be cut off, by a crash; etcd repairs that. end
// becomes the index of the last entry.
func inspectSegment(ctx context.Context, name string, last bool, end *uint64) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	decoder, record := wal.NewDecoder(fileutil.NewFileReader(file)), &walpb.Record{}
	for err = decoder.Decode(record); err == nil; err = decoder.Decode(record) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := endsWith(record, end); err != nil {
			return err
		}
		if record.GetType() != wal.CrcType {
			continue
		}
		if crc := decoder.LastCRC(); crc != 0 && record.Validate(crc) != nil {
			return wal.ErrCRCMismatch
		}
		decoder.UpdateCRC(record.GetCrc())
	}
	if errors.Is(err, io.EOF) || last && errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// endsWith takes in a record of the log. An entry takes the place of those from its index on.
func endsWith(record *walpb.Record, end *uint64) error {
	switch record.GetType() {
	case wal.EntryType:
		entry := new(raftpb.Entry)
		if err := proto.Unmarshal(record.GetData(), entry); err != nil {
			return err
		}
		*end = entry.GetIndex()
	case wal.SnapshotType:
		taken := new(walpb.Snapshot)
		if err := proto.Unmarshal(record.GetData(), taken); err != nil {
			return err
		}
		*end = max(*end, taken.GetIndex())
	}
	return nil
}

// openBound is how long the lock of the database is waited for, which nobody should have.
const openBound = 5 * time.Second

// inspectDatabase reads the database. Its free pages, which nobody has written down, are not looked for: bbolt does that in a goroutine of its own.
func inspectDatabase(ctx context.Context, path string) error {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // bbolt maps the file, which may be shorter than it says
	err := guard(func() error {
		database, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: openBound})
		if err != nil {
			return err
		}
		defer database.Close()
		return database.View(func(tx *bolt.Tx) error {
			return tx.ForEach(func(name []byte, bucket *bolt.Bucket) error {
				return bucket.ForEach(func(key, value []byte) error {
					if ctx.Err() != nil {
						return ctx.Err()
					}
					if string(name) != "key" {
						return nil
					}
					for n := 0; len(value) > 0; value = value[n:] { // not decoded, which would copy all that is stored
						if _, _, n = protowire.ConsumeField(value); n < 0 {
							return fmt.Errorf("the entry %x: %w", key, protowire.ParseError(n))
						}
					}
					return nil
				})
			})
		})
	})
	if broken := (*BrokenError)(nil); errors.As(err, &broken) {
		return errors.New(broken.Cause)
	}
	return err
}
