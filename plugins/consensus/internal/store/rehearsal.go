package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/klauspost/compress/zstd"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/reeveproject/reeve/plugins/consensus/internal/rehearsal"
	"github.com/reeveproject/reeve/plugins/consensus/internal/steps"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/proto/snapshot"
	"github.com/reeveproject/reeve/sdk/checkpoint"
)

const (
	// rehearsalBound is how long a rehearsal may take, after the copy: it is the store's disk and processors that it works on.
	rehearsalBound = 10 * time.Minute
	// rehearsalMemory is what a rehearsal may have at most. rehearsalLeast is too little for one, so that it fails by itself.
	rehearsalMemory, rehearsalLeast = int64(2 << 30), int64(32 << 20)
	// logRoom is what the log of an etcd needs on the disk, that of one which is thrown away as well.
	logRoom = int64(128 << 20)
)

func rehearsalDirectory(directory string) string { return filepath.Join(directory, "rehearsal") }

// trial rehearses a snapshot: it is given what was compressed, before that is sealed to a key that nobody here has. A nil one does nothing.
type trial struct {
	store     *Store
	directory string
	expected  rehearsal.Found

	file   *os.File
	pipe   *io.PipeWriter
	copied chan error
}

func (s *Store) beginRehearsal() (*trial, error) {
	t := &trial{store: s, directory: rehearsalDirectory(s.directory), expected: rehearsal.Found{Counts: make(map[string]int64)}}
	err := checkpoint.Around(steps.BeginRehearsal, func() (err error) {
		if err := errors.Join(rehearsal.Remove(t.directory), os.Mkdir(t.directory, 0o700)); err != nil {
			return err
		}
		t.file, err = os.OpenFile(rehearsal.Path(t.directory), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make the directory in which the snapshot is rehearsed: %w", err), t.end())
	}
	return t, nil
}

// room is how much a snapshot of a database needs: the restored database is a second copy, beside the one that it is made of.
func (t *trial) room(database int64) int64 {
	if t == nil {
		return database
	}
	return 3*database + logRoom
}

// count counts what the store holds at the revision of the snapshot, which must be the newest one.
func (t *trial) count(ctx context.Context, revision int64) error {
	if t == nil {
		return nil
	}
	names, err := t.store.Accounts()
	if err != nil {
		return err
	}
	kv := t.store.etcd.Server.KV()
	counted := func(key, end string) (int64, error) {
		answer, err := kv.Range(ctx, []byte(key), []byte(end), mvcc.RangeOptions{Rev: revision, CountOnly: true})
		if err != nil {
			return 0, fmt.Errorf("count what the store holds at revision %d: %w", revision, err)
		}
		return int64(answer.Count), nil
	}
	if t.expected.Keys, err = counted("\x00", ""); err != nil {
		return err
	}
	for _, name := range names {
		prefix := consensusv1.UserPrefix(name)
		if t.expected.Counts[name], err = counted(prefix, clientv3.GetPrefixRangeEnd(prefix)); err != nil {
			return err
		}
	}
	return nil
}

// unpack returns what takes the compressed database, and unpacks it again.
func (t *trial) unpack() io.Writer {
	if t == nil {
		return io.Discard
	}
	reader, writer := io.Pipe()
	t.pipe, t.copied = writer, make(chan error, 1)
	go func() {
		err := unpackTo(t.file, reader, t.store.checkMargin)
		_ = reader.CloseWithError(err) // so that nobody waits for what is not read
		t.copied <- err
	}()
	return writer
}

func unpackTo(file io.Writer, from io.Reader, margin func(more int64) error) error {
	decoder, err := zstd.NewReader(from, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(window), zstd.WithDecoderLowmem(true))
	if err != nil {
		return err
	}
	defer decoder.Close()
	for {
		if err := margin(marginEvery); err != nil {
			return err
		}
		if _, err := io.CopyN(file, decoder, marginEvery); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("unpack the snapshot again: %w", err)
		}
	}
}

// unpacked waits until all is unpacked. failed is why no more comes.
func (t *trial) unpacked(failed error) error {
	if t == nil {
		return nil
	}
	_ = t.pipe.CloseWithError(failed) // nil is the end
	if err := <-t.copied; failed == nil {
		return err
	}
	return nil
}

// rehearse restores the snapshot, and returns what the cluster user has in it, and what was found.
func (t *trial) rehearse(ctx context.Context, manifest *snapshot.Manifest) (*os.File, *snapshot.Rehearsal, error) {
	checkpoint.Before(steps.Rehearse)
	plan := rehearsal.Plan{
		Directory: t.directory, Prefixes: make(map[string]string), Records: consensusv1.UserPrefix(t.store.plan.ClusterUser), Revision: manifest.Revision,
		Memory: roomToRehearse(), Within: rehearsalBound,
	}
	for name := range t.expected.Counts {
		plan.Prefixes[name] = consensusv1.UserPrefix(name)
	}
	if err := t.store.checkMargin(t.room(manifest.DatabaseSize) - 2*manifest.DatabaseSize); err != nil {
		return nil, nil, err
	}
	found, err := rehearsal.Run(ctx, plan)
	if err != nil {
		return nil, nil, err
	}
	if err := t.compare(found); err != nil {
		return nil, nil, err
	}
	records, err := os.Open(rehearsal.RecordsPath(t.directory))
	if err != nil {
		return nil, nil, fmt.Errorf("read what the rehearsal of the snapshot has read: %w", err)
	}
	checkpoint.After(steps.Rehearse)
	outcome := &snapshot.Rehearsal{Keys: found.Keys, Users: found.Counts, Records: found.Records}
	if len(outcome.Users) > snapshot.MaxUsers {
		outcome.Users = nil
	}
	return records, outcome, nil
}

// roomToRehearse is how much memory a rehearsal may use: half of what the role may, of which the SDK has told Go's garbage collector, and no more than the member leaves. The kernel kills a role as a whole that exceeds its bound.
func roomToRehearse() int64 {
	limit := debug.SetMemoryLimit(-1)
	used := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(used)
	left := limit - int64(used[0].Value.Uint64()-used[1].Value.Uint64())
	return max(min(rehearsalMemory, limit/2, left), rehearsalLeast)
}

// compare holds what was found against what the store held.
func (t *trial) compare(found *rehearsal.Found) error {
	for name, keys := range t.expected.Counts {
		if found.Counts[name] != keys {
			return fmt.Errorf("%w as it should be: the user %s has %d keys in it, and %d in the store", ErrRehearsal, name, found.Counts[name], keys)
		}
	}
	if found.Keys != t.expected.Keys {
		return fmt.Errorf("%w as it should be: it has %d keys, and the store has %d", ErrRehearsal, found.Keys, t.expected.Keys)
	}
	if want := t.expected.Counts[t.store.plan.ClusterUser]; found.Records != want {
		return fmt.Errorf("%w as it should be: %d records of the cluster were read of %d", ErrRehearsal, found.Records, want)
	}
	return nil
}

// end removes what the rehearsal has used.
func (t *trial) end() error {
	var err error
	if t.file != nil {
		err = t.file.Close()
	}
	return errors.Join(err, rehearsal.Remove(t.directory))
}
