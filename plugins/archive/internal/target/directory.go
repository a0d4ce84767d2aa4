package target

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/plugins/archive/internal/configuration"
	"github.com/reeveproject/reeve/proto/snapshot"
)

// draft is a copy that is being written.
const draft = "draft"

// syncEvery is how much is written before it is synced. A slow disk would take its time for all of it at the end, in which nothing is seen to move.
const syncEvery = 16 << 20

// Directory keeps the copies of a node in a directory of the machine, which may be a network file system.
type Directory struct{ parent, path, own string }

// NewDirectory returns the part of a node in a directory. It must be there, on another file system than the role's own directory and the machine's root; the part is made. Without an own directory
// it may be on any.
func NewDirectory(parent, nodeID, own string) *Directory {
	return &Directory{parent: parent, path: filepath.Join(parent, nodeID), own: own}
}

// Place is where the copies are, for people.
func (d *Directory) Place() string { return d.path }

// Close does nothing.
func (*Directory) Close() {}

// List returns the sizes of the copies by name, without those that are damaged. It removes what an earlier process has not finished.
func (d *Directory) List(context.Context) (map[snapshot.Name]int64, error) {
	if err := d.checkMounted(); err != nil {
		return nil, err
	}
	if err := os.Mkdir(d.path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, d.explain("make the directory", err)
	}
	if err := os.Remove(filepath.Join(d.path, draft)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, d.explain("remove a copy that was not finished from", err)
	}
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return nil, d.explain("list the directory", err)
	}
	found := make(map[snapshot.Name]int64)
	for _, entry := range entries {
		name, ok := nameOf(entry.Name())
		if !ok || !entry.Type().IsRegular() {
			continue
		}
		size, ok, err := measure(d.file(name))
		if err != nil {
			return nil, d.explain("list the directory", err)
		}
		if ok {
			found[name] = size
		}
	}
	return found, nil
}

// checkMounted returns an error unless the directory is on another file system than what is the node's own.
func (d *Directory) checkMounted() error {
	var there, own unix.Stat_t
	if err := unix.Stat(d.parent, &there); err != nil {
		return d.explain("look at the directory", err)
	}
	if d.own == "" {
		return nil
	}
	for _, path := range []string{d.own, "/"} {
		if err := unix.Stat(path, &own); err != nil {
			return fmt.Errorf("look on which file system %s is: %w", path, err)
		}
		if own.Dev == there.Dev {
			return fmt.Errorf("no other file system is mounted at %s: mount it, and restart the role if it is mounted later; or set \"sameDisk\": true", d.parent)
		}
	}
	return nil
}

// measure returns the size of a copy; false: it is damaged. One that may not be read, since an earlier user of the role has written it, is taken for good.
func measure(path string) (int64, bool, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return 0, false, err
	}
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return info.Size(), errors.Is(err, fs.ErrPermission), nil
	}
	defer func() { _ = file.Close() }()
	header, err := snapshot.ReadHeader(bufio.NewReader(file))
	return info.Size(), err == nil && header.Size() == info.Size(), nil
}

// nameOf reads the name of a file or an object; false: it is no copy of a snapshot.
func nameOf(file string) (snapshot.Name, bool) {
	text, ok := strings.CutSuffix(file, snapshot.Suffix)
	if !ok {
		return snapshot.Name{}, false
	}
	return snapshot.ParseName(text)
}

// Put writes a copy of so many bytes.
func (d *Directory) Put(_ context.Context, name snapshot.Name, bytes int64, from io.Reader) (err error) {
	var disk unix.Statfs_t
	if err := unix.Statfs(d.path, &disk); err != nil {
		return d.explain("see how much room there is in", err)
	}
	// Some network file systems tell nothing: they have no blocks.
	if free, need := disk.Bavail*uint64(disk.Bsize), uint64(bytes); disk.Blocks > 0 && free < need {
		return d.explain("write into", fmt.Errorf("%w: %d bytes are missing", unix.ENOSPC, need-free))
	}
	path := filepath.Join(d.path, draft)
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return d.explain("write into", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(path) // err matters more
		}
	}()
	n, err := copySynced(file, from)
	if err == nil && n != bytes {
		err = fmt.Errorf("the snapshot has ended after %d bytes of %d", n, bytes)
	}
	if err == nil {
		err = file.Sync()
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return d.explain("write into", err)
	}
	if err := os.Rename(path, d.file(name)); err != nil {
		return d.explain("name a copy in", err)
	}
	return d.sync()
}

// copySynced copies all there is.
func copySynced(to *os.File, from io.Reader) (written int64, err error) {
	for {
		n, err := io.CopyN(to, from, syncEvery)
		written += n
		if errors.Is(err, io.EOF) {
			return written, nil
		}
		if err == nil {
			err = to.Sync()
		}
		if err != nil {
			return written, err
		}
	}
}

// Remove removes a copy.
func (d *Directory) Remove(_ context.Context, name snapshot.Name) error {
	if err := os.Remove(d.file(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return d.explain("remove an old copy from", err)
	}
	return d.sync()
}

func (d *Directory) file(name snapshot.Name) string {
	return filepath.Join(d.path, name.String()+snapshot.Suffix)
}

func (d *Directory) sync() error {
	opened, err := os.Open(d.path)
	if err != nil {
		return d.explain("open", err)
	}
	if err := errors.Join(opened.Sync(), opened.Close()); err != nil {
		return d.explain("write into", err)
	}
	return nil
}

// explain says what cannot be done with the directory, and what to do about it.
func (d *Directory) explain(doing string, err error) error {
	remedy := ""
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		remedy = ": make room there, or keep fewer copies"
	case errors.Is(err, unix.EROFS):
		remedy = ": mount it for writing"
	case errors.Is(err, fs.ErrPermission):
		remedy = fmt.Sprintf(": see that its file system was mounted before the role was started; then run `install -d -m 700 -o %d %s`", os.Getuid(), configuration.Quote(d.path))
	case errors.Is(err, fs.ErrNotExist):
		remedy = fmt.Sprintf(": make %s, or mount what belongs there", d.parent)
	case errors.Is(err, unix.ESTALE):
		remedy = fmt.Sprintf(": the server has another directory there by now: mount %s again", d.parent)
	}
	if reason := (*fs.PathError)(nil); errors.As(err, &reason) {
		err = reason.Err // the path is said already
	}
	return fmt.Errorf("cannot %s %s: %w%s", doing, d.path, err, remedy)
}
