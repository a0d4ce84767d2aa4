package hostapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/reeveproject/reeve/core/filewatch"
	"github.com/reeveproject/reeve/proto/hostfile"
	"github.com/reeveproject/reeve/proto/limits"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// maxContent is the largest part of a file in one request and one answer, which are held in memory as a whole.
const maxContent = 1 << 20

// newFileMode is the mode of new files: readable by every user, like the files in /etc.
const newFileMode = 0o644

func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// files reads and replaces files for roles. Paths must have passed plainPath. Every error is a *hostfile.Error or the context's. Calls for the same path
// run one after the other. The zero value is ready for use.
type files struct {
	locks locks
	// watches tells of changes of files that roles wait for.
	watches filewatch.Watcher
}

// read returns a part of a regular file, from an offset, the digest of the whole file, and its size.
func (f *files) read(ctx context.Context, path string, offset uint64) (part []byte, digest string, size int, err error) {
	unlock, err := f.locks.lock(ctx, path)
	if err != nil {
		return nil, "", 0, err
	}
	defer unlock()
	directory, err := hostfile.OpenDirectory(filepath.Dir(path))
	if err != nil {
		return nil, "", 0, hostfile.Explain(err, "read", path)
	}
	defer directory.Close()
	current, err := openRegular(directory, filepath.Base(path))
	if err != nil {
		return nil, "", 0, hostfile.Explain(err, "read", path)
	}
	defer current.Close()
	size = len(current.content)
	part = current.content[min(offset, uint64(size)):]
	return slices.Clone(part[:min(len(part), maxContent)]), digestOf(current.content), size, nil
}

// lookAgain is the least time between two looks at a file whose change is waited for: whoever changes it all the time must not keep the core busy.
const lookAgain = time.Second

// await returns when the file does not have the digest; an empty one: when it is there.
func (f *files) await(ctx context.Context, path, digest string) error {
	for {
		looked := time.Now()
		changed, stop, err := f.watch(path)
		if err != nil {
			return err
		}
		_, now, _, err := f.read(ctx, path, 0)
		var refused *hostfile.Error
		if errors.As(err, &refused) && refused.Code == codes.NotFound {
			err = nil
		}
		if err != nil || now != digest {
			stop()
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
		stop()
		select {
		case <-time.After(time.Until(looked.Add(lookAgain))):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// watch tells of changes of a file, and of which file has the path. What is written to a file on another mount is told of that file only.
func (f *files) watch(path string) (changed <-chan struct{}, stop func(), err error) {
	directory, err := hostfile.OpenDirectory(filepath.Dir(path))
	if err != nil {
		return nil, nil, hostfile.Explain(err, "watch", path)
	}
	defer directory.Close()
	// By its descriptor a directory or file is watched that nobody can exchange for a link.
	name, err := f.watches.Name(filepath.Join(procPath(int(directory.Fd())), filepath.Base(path)))
	if err != nil {
		return nil, nil, hostfile.Explain(err, "watch", path)
	}
	file, err := hostfile.Open(directory, filepath.Base(path))
	if errors.Is(err, unix.ENOENT) {
		return name.Changed, name.Stop, nil
	}
	if err != nil {
		name.Stop()
		return nil, nil, hostfile.Explain(err, "watch", path)
	}
	defer file.Close()
	if !file.Mounted {
		return name.Changed, name.Stop, nil
	}
	name.Stop()
	content, err := f.watches.File(procPath(int(file.Fd())))
	if err != nil {
		return nil, nil, hostfile.Explain(err, "watch", path)
	}
	return content.Changed, content.Stop, nil
}

// replaced is the result of replacing a file.
type replaced struct {
	// digest is the digest of the new content.
	digest string
	// changed says whether anything was written.
	changed bool
	// inPlace says that the file was written in place because it is a mount point.
	inPlace bool
}

// replace writes content to the file, or in place of a part of it, if its present content has the expected digest, or if the file does not exist and expected is empty. Readers see
// the old or the new content, never a part of it, unless the file is a mount point. Permissions, owner, access list, label and other extended attributes
// stay, or the file is not replaced; a new file belongs to the core's user.
func (f *files) replace(ctx context.Context, path, expected string, part *hostv1.FilePart, content []byte) (replaced, error) {
	const doing = "replace"
	if len(content) > maxContent {
		return replaced{}, refuse(codes.InvalidArgument, doing, path, "the call has %d bytes of new content, more than the limit of %d: replace a part of the file at a time", len(content), maxContent)
	}
	if expected != "" && !limits.DigestOK(expected) {
		return replaced{}, refuse(codes.InvalidArgument, doing, path, "ReadFile did not return this expected digest: pass sha256: and 64 hex digits, or nothing for a file that does not exist")
	}
	return f.rewrite(ctx, doing, path, func(present []byte, exists bool) ([]byte, error) {
		switch {
		case !exists && expected != "":
			return nil, refuse(codes.Aborted, doing, path, "it does not exist any more: read it again and retry")
		case exists && expected == "":
			return nil, refuse(codes.Aborted, doing, path, "it exists, but the call expects that it does not: read it and pass its digest")
		case exists && digestOf(present) != expected:
			return nil, refuse(codes.Aborted, doing, path, "it has changed since it was read: read it again and retry")
		}
		if part == nil {
			return content, nil
		}
		size := uint64(len(present))
		if part.GetOffset() > size || part.GetLength() > size-part.GetOffset() {
			return nil, refuse(codes.InvalidArgument, doing, path, "the part of %d bytes from %d on is not within its %d bytes", part.GetLength(), part.GetOffset(), size)
		}
		whole := slices.Concat(present[:part.GetOffset()], content, present[part.GetOffset()+part.GetLength():])
		if len(whole) > hostfile.MaxSize {
			return nil, refuse(codes.InvalidArgument, doing, path, "it would have %d bytes, more than the limit of %d", len(whole), hostfile.MaxSize)
		}
		return whole, nil
	})
}

// rewrite replaces the file's content with what change returns, like replace. It returns an error of change unchanged and leaves the file.
func (f *files) rewrite(ctx context.Context, doing, path string, change func(present []byte, exists bool) ([]byte, error)) (replaced, error) {
	unlock, err := f.locks.lock(ctx, path)
	if err != nil {
		return replaced{}, err
	}
	defer unlock()
	directory, err := hostfile.OpenDirectory(filepath.Dir(path))
	if errors.Is(err, unix.ENOENT) {
		return replaced{}, refuse(codes.FailedPrecondition, doing, path, "its directory does not exist: make %s first", filepath.Dir(path))
	}
	if err != nil {
		return replaced{}, hostfile.Explain(err, doing, path)
	}
	defer directory.Close()

	name := filepath.Base(path)
	current, err := openRegular(directory, name)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return replaced{}, hostfile.Explain(err, doing, path)
	}
	if current == nil {
		content, err := change(nil, false)
		if err != nil {
			return replaced{}, err
		}
		if err = hostfile.Replaceable(directory, nil); err == nil {
			err = create(directory, name, content)
		}
		if err != nil {
			return replaced{}, hostfile.Explain(err, doing, path)
		}
		return replaced{digest: digestOf(content), changed: true}, nil
	}
	defer current.Close()
	content, err := change(current.content, true)
	if err != nil {
		return replaced{}, err
	}
	made := replaced{digest: digestOf(content), changed: string(content) != string(current.content), inPlace: current.Mounted}
	if !made.changed {
		return made, nil
	}
	if err = hostfile.Replaceable(directory, current.File); err == nil {
		if current.Mounted {
			err = current.overwrite(content)
		} else {
			err = exchange(directory, name, current, content)
		}
	}
	if err != nil {
		return replaced{}, hostfile.Explain(err, doing, path)
	}
	return made, nil
}

// create makes a file that must not exist.
func create(directory *os.File, name string, content []byte) error {
	temporary, err := writeTemporary(directory, content, nil)
	if err != nil {
		return err
	}
	if err := moveNew(directory, temporary, name); err != nil {
		return errors.Join(err, unlinkIn(directory, temporary))
	}
	return directory.Sync()
}

// exchange swaps a new file with current, and verifies that it was current that it moved away.
func exchange(directory *os.File, name string, current *regular, content []byte) (err error) {
	if current.attributes, err = attributesOf(current.File.File); err != nil {
		return err
	}
	temporary, err := writeTemporary(directory, content, current)
	if err != nil {
		return err
	}
	err = renameIn(directory, temporary, name, unix.RENAME_EXCHANGE)
	switch {
	case errors.Is(err, unix.ENOENT):
		return errors.Join(hostfile.ErrChanged, unlinkIn(directory, temporary))
	case unsupported(err):
		// The file system cannot exchange. A write between the comparison and this rename is lost.
		if err := renameIn(directory, temporary, name, 0); err != nil {
			return errors.Join(err, unlinkIn(directory, temporary))
		}
		return directory.Sync()
	case err != nil:
		return errors.Join(err, unlinkIn(directory, temporary))
	}
	// The old file has the temporary name now. If it is not the one that was compared, somebody changed it meanwhile: swap back.
	if !current.isStill(directory, temporary) {
		if err := renameIn(directory, temporary, name, unix.RENAME_EXCHANGE); err != nil {
			return hostfile.Errorf(codes.Internal, err, "somebody else changed it at the same time, and their version could not be put back: it is in the same directory as %s (%v)", temporary, err)
		}
		return errors.Join(hostfile.ErrChanged, unlinkIn(directory, temporary))
	}
	return errors.Join(unlinkIn(directory, temporary), directory.Sync())
}

// isStill reports whether name is still the file that was read, with the same content, owner, permissions and attributes.
func (r *regular) isStill(directory *os.File, name string) bool {
	var now unix.Stat_t
	if err := unix.Fstatat(int(directory.Fd()), name, &now, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return false
	}
	if now.Dev != r.Stat.Dev || now.Ino != r.Stat.Ino || now.Mode != r.Stat.Mode || now.Uid != r.Stat.Uid || now.Gid != r.Stat.Gid {
		return false
	}
	kept, err := attributesOf(r.File.File)
	return err == nil && maps.Equal(kept, r.attributes) && r.isUnchanged()
}

// isUnchanged reports whether the file that was read still has the same content.
func (r *regular) isUnchanged() bool {
	content, err := io.ReadAll(io.NewSectionReader(r, 0, hostfile.MaxSize+1))
	return err == nil && string(content) == string(r.content)
}

// writeTemporary writes a synced temporary file and returns its name. With like, it copies that file's owner, permissions and attributes.
func writeTemporary(directory *os.File, content []byte, like *regular) (_ string, err error) {
	file, name, err := createTemporary(directory)
	if err != nil {
		return "", err
	}
	defer func() {
		err = errors.Join(err, file.Close())
		if err != nil {
			err = errors.Join(err, unlinkIn(directory, name))
		}
	}()
	if _, err := file.Write(content); err != nil {
		return "", err
	}
	if like == nil {
		err = unix.Fchmod(int(file.Fd()), newFileMode)
	} else {
		err = like.dress(file)
	}
	if err != nil {
		return "", err
	}
	return name, file.Sync()
}

// dress gives a new file of the core the attributes, owner and permissions of the one that was read. At no moment may anybody open it who may not open that one.
func (r *regular) dress(file *os.File) error {
	fd := int(file.Fd())
	if err := r.attributes.copy(file, false); err != nil {
		return err
	}
	var own unix.Stat_t
	if err := unix.Fstat(fd, &own); err != nil {
		return err
	}
	if own.Uid != r.Stat.Uid || own.Gid != r.Stat.Gid {
		// The new owner may be allowed less than the mode of a temporary file.
		if err := unix.Fchmod(fd, 0); err != nil {
			return err
		}
		if err := unix.Fchown(fd, int(r.Stat.Uid), int(r.Stat.Gid)); err != nil {
			return hostfile.RefuseOwner(&r.Stat, err)
		}
	}
	if err := r.attributes.copy(file, true); err != nil {
		return err
	}
	return unix.Fchmod(fd, r.Stat.Mode&0o777)
}

// temporaryPrefix is the prefix of temporary files. A crash may leave one behind.
const temporaryPrefix = ".reeve-"
