package scheduled

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/plugins/curator/internal/steps"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/proto/snapshot"
	"github.com/reeveproject/reeve/sdk/checkpoint"
)

const (
	draft = "draft"
	// marginPart and mostMargin bound what stays free on the disk beside a snapshot, as the store's member has it.
	marginPart, mostMargin = 50, uint64(256 << 20)
)

// ErrNone says that there is no snapshot of a name.
var ErrNone = errors.New("there is no such snapshot on this node")

// errNoRoom says that there is no room for one.
var errNoRoom = errors.New("there is too little room for it on the node's volume")

// shortError is an errNoRoom that knows how many bytes are missing.
type shortError struct {
	error
	missing uint64
}

func (e *shortError) Unwrap() error { return e.error }

// Directory has the good snapshots of a node, each in a file of its name, and nothing else but one that is being written.
type Directory struct {
	path, node string
	// freeSpace returns how much a user may still write there, and the size of all.
	freeSpace func(path string) (free, all uint64, err error)
}

// OpenDirectory makes the directory if it is not there.
func OpenDirectory(path, node string) *Directory {
	return &Directory{path: path, node: node, freeSpace: freeSpace}
}

// prepare makes the directory, and removes what a process left that was killed while it wrote.
func (d *Directory) prepare() error {
	if err := os.Mkdir(d.path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make the directory for snapshots: %w", err)
	}
	if err := os.Remove(filepath.Join(d.path, draft)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove a snapshot that was not finished: %w", err)
	}
	return nil
}

func nameOf(task *clusterv1.SnapshotTask) string {
	return snapshot.Name{Asked: task.GetAsked().AsTime(), Number: task.GetNumber()}.String()
}

// taskOf returns what a name says; nil: it is none.
func (d *Directory) taskOf(name string) *clusterv1.SnapshotTask {
	parsed, ok := snapshot.ParseName(name)
	if !ok {
		return nil
	}
	return &clusterv1.SnapshotTask{Number: parsed.Number, NodeId: d.node, Asked: timestamppb.New(parsed.Asked)}
}

// List returns the good ones, the newest first. What else is in the directory is left alone, and not listed.
func (d *Directory) List() ([]*clusterv1.StoredSnapshot, error) {
	entries, err := os.ReadDir(d.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the snapshots of this node: %w", err)
	}
	var found []*clusterv1.StoredSnapshot
	for _, entry := range entries {
		name, is := strings.CutSuffix(entry.Name(), snapshot.Suffix)
		task := d.taskOf(name)
		if !is || task == nil {
			continue
		}
		file, header, err := d.Open(name)
		if err != nil {
			continue
		}
		_ = file.Close()
		found = append(found, &clusterv1.StoredSnapshot{
			Name: name, Task: task, Revision: header.Manifest.Revision, Bytes: header.Size(), Keys: header.Manifest.Rehearsal.Keys,
			Recipient: header.Manifest.Recipient, Signer: snapshot.ShowKey(header.Authority),
		})
	}
	slices.SortFunc(found, func(a, b *clusterv1.StoredSnapshot) int {
		return cmp.Compare(b.GetTask().GetNumber(), a.GetTask().GetNumber())
	})
	return found, nil
}

// Open opens one at its beginning. The error is ErrNone if there is none.
func (d *Directory) Open(name string) (*os.File, *snapshot.Header, error) {
	if d.taskOf(name) == nil {
		return nil, nil, ErrNone
	}
	file, err := os.OpenFile(filepath.Join(d.path, name+snapshot.Suffix), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, ErrNone
	}
	if err != nil {
		return nil, nil, err
	}
	header, err := snapshot.ReadHeader(bufio.NewReader(file))
	if err == nil {
		err = checkWhole(file, header)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("the snapshot %s on this node is damaged: %w", name, err), file.Close())
	}
	return file, header, nil
}

// checkWhole holds a file against its header, and leaves it at its beginning.
func checkWhole(file *os.File, header *snapshot.Header) error {
	if header.Manifest.Rehearsal == nil {
		return errors.New("it was never rehearsed")
	}
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if size != header.Size() {
		return fmt.Errorf("it has %d bytes of %d", size, header.Size())
	}
	_, err = file.Seek(0, io.SeekStart)
	return err
}

// Write writes one. It has its name only when all of it is on the disk, and is what the header says. The error is errNoRoom by errors.Is if there is no room.
func (d *Directory) Write(task *clusterv1.SnapshotTask, header *snapshot.Header, payload io.Reader) (err error) {
	free, all, err := d.freeSpace(d.path)
	if err != nil {
		return fmt.Errorf("look how much room there is: %w", err)
	}
	if need := uint64(header.Size()) + min(all/marginPart, mostMargin); free < need {
		return &shortError{error: fmt.Errorf("%w: it has %d MiB free, and %d MiB are needed: make room on it", errNoRoom, free>>20, (need+1<<20-1)>>20), missing: need - free}
	}
	path := filepath.Join(d.path, draft)
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return explain(err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(path)
		}
	}()
	_, err = file.Write(header.Marshal())
	if err == nil {
		_, err = io.Copy(file, header.Payload(bufio.NewReader(payload)))
	}
	if err == nil {
		err = file.Sync()
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return explain(err)
	}
	return checkpoint.Around(steps.StoreSnapshot, func() error {
		if err := os.Rename(path, filepath.Join(d.path, nameOf(task)+snapshot.Suffix)); err != nil {
			return fmt.Errorf("give the snapshot its name: %w", err)
		}
		return d.sync()
	})
}

func explain(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("%w: %w", errNoRoom, err)
	}
	return fmt.Errorf("write the snapshot: %w", err)
}

// Keep removes all but the newest ones, and returns those that are left.
func (d *Directory) Keep(newest int) ([]*clusterv1.StoredSnapshot, error) {
	found, err := d.List()
	if err != nil || len(found) <= newest {
		return found, err
	}
	for _, one := range found[newest:] {
		if err := os.Remove(filepath.Join(d.path, one.GetName()+snapshot.Suffix)); err != nil {
			return nil, fmt.Errorf("remove an old snapshot: %w", err)
		}
	}
	return found[:newest], d.sync()
}

// makeRoom removes as many of the oldest ones as have the bytes that are missing, never the last, and returns how many. If all have less, or nobody knows what is missing, none goes: it is something else that fills the disk.
func (d *Directory) makeRoom(missing uint64) (removed int, err error) {
	found, err := d.List()
	if err != nil || missing == 0 || len(found) <= 1 {
		return 0, err
	}
	keep, freed := len(found), uint64(0)
	for ; freed < missing && keep > 1; keep-- {
		freed += uint64(found[keep-1].GetBytes())
	}
	if freed < missing {
		return 0, fmt.Errorf("they have %d MiB, which is not enough", freed>>20)
	}
	_, err = d.Keep(keep)
	if err != nil {
		return 0, err
	}
	return len(found) - keep, nil
}

func (d *Directory) sync() error {
	opened, err := os.Open(d.path)
	if err != nil {
		return err
	}
	return errors.Join(opened.Sync(), opened.Close())
}

func freeSpace(path string) (free, all uint64, err error) {
	var found unix.Statfs_t
	if err := unix.Statfs(path, &found); err != nil {
		return 0, 0, err
	}
	return found.Bavail * uint64(found.Bsize), found.Blocks * uint64(found.Bsize), nil
}
