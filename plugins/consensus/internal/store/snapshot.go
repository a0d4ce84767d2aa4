package store

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"
	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/plugins/consensus/internal/rehearsal"
	"github.com/reeveproject/reeve/proto/snapshot"
)

// The reasons why a snapshot is not taken, by errors.Is.
var (
	// ErrRecipient says that it cannot be sealed to what was given.
	ErrRecipient = errors.New("the recipient is not the public half of a recovery key, which begins with age1")
	// ErrUnderway says that another one is being taken, or read.
	ErrUnderway = errors.New("another snapshot is being taken")
	// ErrUnfit says that this member, as it is, takes none.
	ErrUnfit = errors.New("its member cannot take one")
	// ErrNoRoom says that there is no room for one on its disk. It is an ErrUnfit.
	ErrNoRoom = fmt.Errorf("%w: there is too little room", ErrUnfit)
	// ErrNotNow says that it may do so later.
	ErrNotNow = errors.New("its member cannot take one now")
	// ErrRehearsal says that one was taken, and is not what the store holds.
	ErrRehearsal = rehearsal.ErrFailed
)

const (
	// copyBound is how long the database may take to be copied. Pages that are freed meanwhile are not used again, so the database grows, and nothing defragments it.
	copyBound = 10 * time.Minute
	// marginPart and mostMargin bound what must stay free on the disk beside a snapshot: a part of it. The core keeps a hundredth, 32 MiB at most, and stops who takes that.
	marginPart = 50
	mostMargin = int64(256 << 20)
	// marginEvery is after how many bytes of a snapshot it is looked again whether there is room.
	marginEvery = 1 << 20
	// workBytes is after how many bytes of the database the copy rests, and restShare for how many times as long as these took: the store answers its users on the same processors and disk.
	// What is left to copy has one part in restReserve of the time that is left, and it rests in that only while it needs less.
	workBytes, restShare, restReserve = 256 << 10, 3, 2
	// window is how far back the compression looks, which is what it keeps in memory.
	window = 1 << 20
)

// Snapshot is a copy of the store at one revision, complete on the member's disk. Reading it asks nothing of the store. It is to be closed.
type Snapshot struct {
	// Manifest is the line of its manifest.
	Manifest []byte
	// Records are what the cluster user has in it, as its rehearsal has read that: consensusv1.SnapshotRecords, each behind its size. Nil: it was not rehearsed.
	Records *os.File

	file  *os.File
	close func()
}

// SnapshotOptions are how a snapshot is taken.
type SnapshotOptions struct {
	// Recipient is the public half of the recovery key that opens it; empty: it is not sealed.
	Recipient string
	// Rehearse has it restored into an etcd that is thrown away, and compared with the store.
	Rehearse bool
}

// Read reads the payload.
func (s *Snapshot) Read(into []byte) (int, error) { return s.file.Read(into) }

// Close removes it from the disk. Another one can be taken then. It may be called more than once, and while somebody reads.
func (s *Snapshot) Close() error {
	defer s.close()
	if s.Records == nil {
		return s.file.Close()
	}
	return errors.Join(s.file.Close(), s.Records.Close())
}

// Snapshot takes a snapshot. Everything that was acknowledged before the call is in it. There is one at a time, until it is closed.
func (s *Store) Snapshot(ctx context.Context, options SnapshotOptions) (*Snapshot, error) {
	taken, err := s.takeSnapshot(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("cannot take a snapshot on node %s: %w", s.plan.NodeID, err)
	}
	return taken, nil
}

func (s *Store) takeSnapshot(ctx context.Context, options SnapshotOptions) (*Snapshot, error) {
	to, err := parseRecipient(options.Recipient)
	if err != nil {
		return nil, err
	}
	if since := time.Now(); !s.snapshot.CompareAndSwap(nil, &since) {
		if began := s.snapshot.Load(); began != nil {
			return nil, fmt.Errorf("%w since %s: wait until that is done, or ask another node's curator", ErrUnderway, began.UTC().Format(time.RFC3339))
		}
		return nil, fmt.Errorf("%w: try again", ErrUnderway)
	}
	end := func() { s.snapshot.Store(nil) }
	taken := &Snapshot{close: sync.OnceFunc(end)}
	if taken.file, err = openSpool(s.directory); err != nil {
		end()
		return nil, err
	}
	manifest, err := s.copyDatabase(ctx, taken, options, to)
	if err == nil {
		taken.Manifest, err = manifest.Marshal()
	}
	if err != nil {
		return nil, errors.Join(err, taken.Close())
	}
	return taken, nil
}

// parseRecipient returns nil for nobody.
func parseRecipient(text string) (to age.Recipient, err error) {
	switch {
	case text == "":
		return nil, nil
	case strings.HasPrefix(text, "age1pq1"):
		to, err = age.ParseHybridRecipient(text)
	default:
		to, err = age.ParseX25519Recipient(text)
	}
	if err != nil {
		return nil, ErrRecipient
	}
	return to, nil
}

func spoolPath(directory string) string { return filepath.Join(directory, "snapshot.spool") }

// openSpool opens a file that has no name, so that it goes with the process that fills it, however that ends.
func openSpool(directory string) (*os.File, error) {
	path := spoolPath(directory)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make the file that it is written to: %w", err)
	}
	if err := os.Remove(path); err != nil {
		return nil, errors.Join(fmt.Errorf("make the file that it is written to: %w", err), file.Close())
	}
	return file, nil
}

// removeSpool removes the empty file that a process leaves which is killed between making it and taking its name away.
func removeSpool(directory string) error {
	if err := os.Remove(spoolPath(directory)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove what is left of a snapshot: %w", err)
	}
	return nil
}

// copyDatabase fills the file, leaves it at its beginning, and returns the manifest. If the copy is to be rehearsed, it is.
func (s *Store) copyDatabase(ctx context.Context, taken *Snapshot, options SnapshotOptions, to age.Recipient) (*snapshot.Manifest, error) {
	if !options.Rehearse {
		return s.spoolSnapshot(ctx, taken.file, options.Recipient, to, nil)
	}
	tried, err := s.beginRehearsal()
	if err != nil {
		return nil, err
	}
	manifest, err := s.spoolSnapshot(ctx, taken.file, options.Recipient, to, tried)
	if err == nil {
		taken.Records, manifest.Rehearsal, err = tried.rehearse(ctx, manifest)
	}
	return manifest, errors.Join(err, tried.end())
}

// spoolSnapshot fills the file, leaves it at its beginning, and returns the manifest. tried is what rehearses the copy; nil: nothing does.
func (s *Store) spoolSnapshot(ctx context.Context, file *os.File, recipient string, to age.Recipient, tried *trial) (*snapshot.Manifest, error) {
	ctx, cancel := context.WithTimeout(ctx, copyBound)
	defer cancel()
	server := s.etcd.Server
	switch status, _ := s.status.Get(); {
	case s.Learner():
		return nil, fmt.Errorf("%w: it does not vote yet; ask another node's curator, or wait until it does", ErrUnfit)
	case status.Corrupt:
		return nil, fmt.Errorf("%w: %s", ErrUnfit, status.Problem())
	}
	// A member that is cut off must not give away an old state as the present one. What was acknowledged until now is applied here when this returns.
	reading, stop := context.WithTimeout(ctx, server.Cfg.ReqTimeout())
	err := server.LinearizableReadNotify(reading)
	stop()
	if err != nil {
		return nil, fmt.Errorf("%w: the store does not answer within a quorum: %w", ErrNotNow, err)
	}
	for _, damage := range s.damages() {
		// As long as nobody can tell which of two members is right, a person may want what each of them holds.
		if damage.MemberID == s.MemberID() && (damage.Certain || tried != nil) {
			return nil, fmt.Errorf("%w: its data may be damaged: %s; ask another node's curator", ErrUnfit, damage.Reason)
		}
	}
	// Whoever takes one snapshot after the other does not keep the store from making room.
	if until := s.rewriteFirst.Load(); until != nil && time.Now().Before(*until) {
		return nil, fmt.Errorf("%w: its database is to be defragmented first; try again in %s", ErrNotNow, rewriteBefore)
	}
	// Defragmenting would wait for the end of the copy, and everybody for that.
	if !s.copying.TryLock() {
		return nil, fmt.Errorf("%w: its database is being defragmented; try again", ErrNotNow)
	}
	defer s.copying.Unlock()
	if err := s.checkMargin(tried.room(server.Backend().Size())); err != nil {
		return nil, err
	}
	now := time.Now().UTC()
	database := server.Backend().Snapshot()
	manifest := &snapshot.Manifest{
		ClusterID: s.plan.ClusterID, NodeID: s.plan.NodeID, MemberID: s.MemberID(), Time: now, ReeveVersion: s.config.Version,
		Compression: snapshot.Compression, Recipient: recipient, DatabaseSize: database.Size(),
	}
	if version := server.StorageVersion(); version != nil {
		manifest.StorageVersion = version.String()
	}
	// This is a transaction of bbolt, and the revision must be that of what it copies.
	copied, ok := database.(interface{ Bucket([]byte) *bbolt.Bucket })
	if !ok {
		return nil, errors.Join(errors.New("etcd's snapshot is none of bbolt"), database.Close())
	}
	manifest.Revision, manifest.CompactRevision = revisionsOf(copied)
	if err := tried.count(ctx, manifest.Revision); err != nil {
		return nil, errors.Join(err, database.Close())
	}
	written := &spool{ctx: ctx, file: file, hash: sha256.New(), margin: s.checkMargin}
	sum, err := pack(written, tried.unpack(), to, resting{ctx, database, manifest.DatabaseSize})
	if err := errors.Join(err, tried.unpacked(err), database.Close()); err != nil {
		return nil, s.explain(ctx, err)
	}
	manifest.DatabaseSHA256 = fmt.Sprintf("%x", sum)
	manifest.PayloadSize, manifest.PayloadSHA256 = written.size, fmt.Sprintf("%x", written.hash.Sum(nil))
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("read what was written: %w", err)
	}
	return manifest, nil
}

// explain says why a copy failed.
func (s *Store) explain(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded) && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("%w: the copy was not complete within %s: the disk is slow, or has other work; try again", ErrNotNow, copyBound)
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT):
		return fmt.Errorf("%w: the node's volume is full: %w; make room on it", ErrNoRoom, err)
	}
	return err
}

// pack writes the payload: the database and its hash, as etcd's own snapshots end, compressed and sealed. It returns the hash. compressedTo is
// written what is sealed, too.
func pack(to, compressedTo io.Writer, recipient age.Recipient, database io.WriterTo) (sum []byte, err error) {
	sealed := io.WriteCloser(unsealed{to})
	if recipient != nil {
		if sealed, err = age.Encrypt(to, recipient); err != nil {
			return nil, fmt.Errorf("seal it: %w", err)
		}
	}
	compressed, err := zstd.NewWriter(io.MultiWriter(sealed, compressedTo), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(window), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, fmt.Errorf("compress it: %w", err)
	}
	hashed := sha256.New()
	_, err = database.WriteTo(io.MultiWriter(compressed, hashed))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("copy the database: %w", err), compressed.Close())
	}
	sum = hashed.Sum(nil)
	if _, err := compressed.Write(sum); err != nil {
		return nil, errors.Join(err, compressed.Close())
	}
	return sum, errors.Join(compressed.Close(), sealed.Close())
}

// unsealed is a payload that is not sealed.
type unsealed struct{ io.Writer }

// Close implements io.Closer.
func (unsealed) Close() error { return nil }

// spool writes the payload to its file, for as long as somebody waits for it and there is room.
type spool struct {
	ctx     context.Context
	file    io.Writer
	hash    hash.Hash
	size    int64
	checked int64
	margin  func(more int64) error
}

// Write implements io.Writer.
func (s *spool) Write(part []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	if s.size-s.checked >= marginEvery {
		if err := s.margin(marginEvery); err != nil {
			return 0, err
		}
		s.checked = s.size
	}
	n, err := s.file.Write(part)
	_, _ = s.hash.Write(part[:n])
	s.size += int64(n)
	return n, err
}

// ShortError is an ErrNoRoom that knows how many bytes are missing.
type ShortError struct {
	error
	Missing int64
}

// Unwrap implements the interface of package errors.
func (e *ShortError) Unwrap() error { return e.error }

// checkMargin refuses to write so much more to the disk if that would not leave enough for everybody else.
func (s *Store) checkMargin(more int64) error {
	free, all, err := s.freeSpace(s.directory)
	if err != nil {
		return fmt.Errorf("look how much room there is: %w", err)
	}
	if margin := min(all/marginPart, mostMargin); free < more+margin {
		err := fmt.Errorf("%w: its volume has %s free, and %s are needed: make room on it, or ask another node's curator", ErrNoRoom, spell(free), spell(more+margin))
		return &ShortError{error: err, Missing: more + margin - free}
	}
	return nil
}

// freeSpace returns the size of the file system of a directory and what a user may still write there.
func freeSpace(directory string) (free, all int64, err error) {
	var found unix.Statfs_t
	if err := unix.Statfs(directory, &found); err != nil {
		return 0, 0, err
	}
	return int64(found.Bavail) * found.Bsize, int64(found.Blocks) * found.Bsize, nil
}

// revisionsOf returns the revision of a database and that to which it was compacted. A compaction leaves the newest revision of what is deleted to later ones, so an empty store has
// only the latter.
func revisionsOf(database interface{ Bucket([]byte) *bbolt.Bucket }) (revision, compacted int64) {
	revision = 1
	if keys := database.Bucket(schema.Key.Name()); keys != nil {
		last, _ := keys.Cursor().Last()
		revision = max(revision, mainOf(last))
	}
	if meta := database.Bucket(schema.Meta.Name()); meta != nil {
		compacted = mainOf(meta.Get(schema.FinishedCompactKeyName))
		revision = max(revision, compacted, mainOf(meta.Get(schema.ScheduledCompactKeyName)))
	}
	return revision, compacted
}

// mainOf returns the main part of a revision as etcd writes it: big-endian, before the sub-revision.
func mainOf(revision []byte) int64 {
	if len(revision) < 8 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(revision))
}
