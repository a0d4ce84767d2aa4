package hostile

import (
	"crypto/sha256"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// mark is a file as it was: what the kernel says of it, and its content.
type mark struct {
	device, inode  uint64
	size           int64
	mode, uid, gid uint32
	// changed is when the kernel last noted a change of it, which nobody can set.
	changed unix.Timespec
	sum     [sha256.Size]byte
}

// markOf looks at a file and reads it.
func markOf(path string) (mark, error) {
	m, err := statMark(path)
	if err != nil {
		return m, err
	}
	content, err := os.ReadFile(path)
	m.sum = sha256.Sum256(content)
	return m, err
}

func statMark(path string) (m mark, err error) {
	var found unix.Stat_t
	if err := unix.Stat(path, &found); err != nil {
		return m, err
	}
	return mark{
		device: found.Dev, inode: found.Ino, size: found.Size, mode: found.Mode, uid: found.Uid, gid: found.Gid, changed: found.Ctim,
	}, nil
}

// sameFiles looks whether the files that nobody is to change are as they were. They are only read again if the kernel says that something has changed: reading
// all plugins after every row would take as long as the rows.
func (s *scene) sameFiles(o *Outcome) {
	for path, was := range s.files {
		now, err := statMark(path)
		if now.sum = was.sum; err == nil && now == was {
			continue
		}
		now, err = markOf(path)
		if err != nil || now.sum != was.sum || now.mode != was.mode || now.uid != was.uid || now.gid != was.gid {
			o.escape("%s is another than before (%v)", path, err)
		}
		s.files[path] = now
	}
}

// thorough reads all of them again.
func (s *scene) thorough(t *testing.T) {
	t.Helper()
	for path, was := range s.files {
		if now, err := markOf(path); err != nil || now.sum != was.sum {
			t.Errorf("as %s, in the end %s is another than before (%v)", s.user, path, err)
		}
	}
}
