package hostapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/reeveproject/reeve/proto/limits"
)

// maxFileSize is the largest file that a role reads or replaces. Configuration files of the host are far smaller, and a request is held in memory as
// a whole.
const maxFileSize = 1 << 20

// newFileMode is the mode of new files: readable by every user, like the files in /etc.
const newFileMode = 0o644

func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// files reads and replaces files for roles. Paths must have passed plainPath. Every error is a *fileError or the context's. Calls for the same path
// run one after the other. The zero value is ready for use.
type files struct {
	locks locks
}

// read returns the content of a regular file and its digest.
func (f *files) read(ctx context.Context, path string) (content []byte, digest string, err error) {
	unlock, err := f.locks.lock(ctx, path)
	if err != nil {
		return nil, "", err
	}
	defer unlock()
	directory, err := openDirectory(filepath.Dir(path))
	if err != nil {
		return nil, "", explain(err, "read", path)
	}
	defer directory.Close()
	current, err := openRegular(directory, filepath.Base(path))
	if err != nil {
		return nil, "", explain(err, "read", path)
	}
	defer current.file.Close()
	return current.content, digestOf(current.content), nil
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

// replace writes content to the file if its present content has the expected digest, or if the file does not exist and expected is empty. Readers see
// the old or the new content, never a part of it, unless the file is a mount point. Permissions and owner stay; a new file belongs to the core's
// user. Access lists and extended attributes are lost unless the file is written in place.
func (f *files) replace(ctx context.Context, path, expected string, content []byte) (replaced, error) {
	const doing = "replace"
	if len(content) > maxFileSize {
		return replaced{}, refuse(codes.InvalidArgument, doing, path, "the new content has %d bytes, more than the limit of %d", len(content), maxFileSize)
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
		return content, nil
	})
}

// rewrite replaces the file's content with what change returns, like replace. It returns an error of change unchanged and leaves the file.
func (f *files) rewrite(ctx context.Context, doing, path string, change func(present []byte, exists bool) ([]byte, error)) (replaced, error) {
	unlock, err := f.locks.lock(ctx, path)
	if err != nil {
		return replaced{}, err
	}
	defer unlock()
	directory, err := openDirectory(filepath.Dir(path))
	if errors.Is(err, unix.ENOENT) {
		return replaced{}, refuse(codes.FailedPrecondition, doing, path, "its directory does not exist: make %s first", filepath.Dir(path))
	}
	if err != nil {
		return replaced{}, explain(err, doing, path)
	}
	defer directory.Close()

	name := filepath.Base(path)
	current, err := openRegular(directory, name)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return replaced{}, explain(err, doing, path)
	}
	if current == nil {
		content, err := change(nil, false)
		if err != nil {
			return replaced{}, err
		}
		if err := create(directory, name, content); err != nil {
			return replaced{}, explain(err, doing, path)
		}
		return replaced{digest: digestOf(content), changed: true}, nil
	}
	defer current.file.Close()
	content, err := change(current.content, true)
	if err != nil {
		return replaced{}, err
	}
	made := replaced{digest: digestOf(content), changed: string(content) != string(current.content), inPlace: current.mounted}
	if !made.changed {
		return made, nil
	}
	if current.mounted {
		err = current.overwrite(content)
	} else {
		err = exchange(directory, name, current, content)
	}
	if err != nil {
		return replaced{}, explain(err, doing, path)
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
func exchange(directory *os.File, name string, current *regular, content []byte) error {
	temporary, err := writeTemporary(directory, content, &current.stat)
	if err != nil {
		return err
	}
	err = renameIn(directory, temporary, name, unix.RENAME_EXCHANGE)
	switch {
	case errors.Is(err, unix.ENOENT):
		return errors.Join(errChanged, unlinkIn(directory, temporary))
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
			return newFileError(codes.Internal, err, "somebody else changed it at the same time, and their version could not be put back: it is in the same directory as %s (%v)", temporary, err)
		}
		return errors.Join(errChanged, unlinkIn(directory, temporary))
	}
	return errors.Join(unlinkIn(directory, temporary), directory.Sync())
}

// isStill reports whether name is still the file that was read, with the same content.
func (r *regular) isStill(directory *os.File, name string) bool {
	var now unix.Stat_t
	if err := unix.Fstatat(int(directory.Fd()), name, &now, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return false
	}
	if now.Dev != r.stat.Dev || now.Ino != r.stat.Ino {
		return false
	}
	return r.isUnchanged()
}

// isUnchanged reports whether the file that was read still has the same content.
func (r *regular) isUnchanged() bool {
	content, err := io.ReadAll(io.NewSectionReader(r.file, 0, maxFileSize+1))
	return err == nil && string(content) == string(r.content)
}

// writeTemporary writes a synced temporary file and returns its name. With like, it copies that file's permissions and owner.
func writeTemporary(directory *os.File, content []byte, like *unix.Stat_t) (_ string, err error) {
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
	mode := uint32(newFileMode)
	if like != nil {
		mode = like.Mode & 0o777
		var own unix.Stat_t
		if err := unix.Fstat(int(file.Fd()), &own); err != nil {
			return "", err
		}
		if own.Uid != like.Uid || own.Gid != like.Gid {
			if err := unix.Fchown(int(file.Fd()), int(like.Uid), int(like.Gid)); err != nil {
				return "", newFileError(codes.PermissionDenied, err, "it belongs to %d:%d, and the core's user cannot create files of that owner: "+
					"run the core as root, or give the file to the core's user", like.Uid, like.Gid)
			}
		}
	}
	if err := unix.Fchmod(int(file.Fd()), mode); err != nil {
		return "", err
	}
	return name, file.Sync()
}

// temporaryPrefix is the prefix of temporary files. A crash may leave one behind.
const temporaryPrefix = ".reeve-"
