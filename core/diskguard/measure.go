package diskguard

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/proto/eintr"
)

const (
	// maxFiles is how many files of a role are looked at, and patience for how long: more than an honest role has, and less than anybody waits.
	maxFiles = 300_000
	patience = 3 * time.Second
	// maxPending is how long the names of directories may be that wait for their turn, together, in bytes.
	maxPending = 4 << 20
	// lookAgain is after how many files the time is looked at.
	lookAgain = 256
	// namesBuffer is how much of a directory is read at a time, in bytes.
	namesBuffer = 32 << 10
)

// use is what a role has on the volume.
type use struct {
	has amount
	// named are those of the bytes that are in its directory.
	named int64
	// whole says that this is all: what a role has beyond what is looked at is not in it.
	whole bool
}

// shrunk reports whether it is considerably less than when the role was stopped.
func (u use) shrunk(s stop) bool {
	return (s.Bytes == 0 || u.named <= s.Bytes/4*3) && (s.Files == 0 || u.has[inFiles] <= s.Files/4*3)
}

// measure adds up what is in a directory that a role may write in while it is measured. No link is followed, no other mount is entered, and nothing but
// directories is opened.
func measure(ctx context.Context, path string) use {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return use{whole: err == unix.ENOENT}
	}
	var top unix.Statx_t
	w := walk{ctx: ctx, whole: true, buffer: make([]byte, namesBuffer)}
	if err := statx(fd, "", unix.AT_EMPTY_PATH, &top); err != nil {
		_ = unix.Close(fd)
		return use{}
	}
	w.add(&top)
	w.mount, w.major, w.minor = top.Mnt_id, top.Dev_major, top.Dev_minor
	w.directory(fd, place{inode: top.Ino, major: top.Dev_major, minor: top.Dev_minor})
	return use{has: amount{w.bytes, w.files}, named: w.bytes, whole: w.whole}
}

// walk goes through a tree. It holds two descriptors however deep the tree is: the way back up is "..", and is only taken if it leads to where the
// way down came from, since the role may move directories meanwhile.
type walk struct {
	ctx          context.Context
	buffer       []byte
	mount        uint64
	major, minor uint32
	bytes, files int64
	pending      int
	whole        bool
}

// place is a directory, wherever it is moved.
type place struct {
	inode        uint64
	major, minor uint32
}

// directory adds up a tree and closes its descriptor. Of a directory the names of the directories in it are kept until it is their turn.
func (w *walk) directory(fd int, at place) {
	type level struct {
		place place
		names []string
	}
	levels := []level{{place: at, names: w.entries(fd)}}
	defer func() { _ = unix.Close(fd) }()
	for {
		top := &levels[len(levels)-1]
		if w.over() {
			return
		}
		if len(top.names) == 0 {
			if len(levels) == 1 {
				return
			}
			levels = levels[:len(levels)-1]
			up, err := unix.Openat(fd, "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			if err != nil {
				w.whole = false
				return
			}
			_ = unix.Close(fd)
			fd = up
			if now, ok := w.place(fd); !ok || now != levels[len(levels)-1].place {
				w.whole = false // it was moved: what is left is counted the next time
				return
			}
			continue
		}
		name := top.names[len(top.names)-1]
		top.names = top.names[:len(top.names)-1]
		w.pending -= len(name)
		down, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			w.whole = w.whole && (err == unix.ENOENT || err == unix.ENOTDIR || err == unix.ELOOP)
			continue
		}
		where, ok := w.place(down)
		if !ok {
			_ = unix.Close(down)
			continue
		}
		_ = unix.Close(fd)
		fd = down
		levels = append(levels, level{place: where, names: w.entries(fd)})
	}
}

// place says where a directory is, and whether it is on the mount that is measured.
func (w *walk) place(fd int) (place, bool) {
	var stat unix.Statx_t
	if err := statx(fd, "", unix.AT_EMPTY_PATH, &stat); err != nil || stat.Mnt_id != w.mount || stat.Dev_major != w.major || stat.Dev_minor != w.minor {
		return place{}, false
	}
	return place{inode: stat.Ino, major: stat.Dev_major, minor: stat.Dev_minor}, true
}

// entries counts what is in a directory, and returns the names of the directories in it.
func (w *walk) entries(fd int) (directories []string) {
	for !w.over() {
		n, err := eintr.Retry(func() (int, error) { return unix.ReadDirent(fd, w.buffer) })
		if err != nil {
			w.whole = false
			return directories
		}
		if n <= 0 {
			return directories
		}
		_, _, names := unix.ParseDirent(w.buffer[:n], -1, nil)
		for _, name := range names {
			var stat unix.Statx_t
			if err := statx(fd, name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, &stat); err != nil {
				continue // gone meanwhile
			}
			w.add(&stat)
			if stat.Mode&unix.S_IFMT == unix.S_IFDIR && stat.Mnt_id == w.mount {
				if w.pending += len(name); w.pending > maxPending {
					w.whole = false
					w.pending -= len(name)
					continue
				}
				directories = append(directories, name)
			}
			if w.files%lookAgain == 0 && w.over() {
				break
			}
		}
	}
	return directories
}

// add counts a file. One with several names counts for each only its part, so that nobody has more by naming it often.
func (w *walk) add(stat *unix.Statx_t) {
	w.files++
	bytes := int64(stat.Blocks) * 512
	if stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		bytes /= max(int64(stat.Nlink), 1)
	}
	w.bytes += bytes
}

func (w *walk) over() bool {
	if w.files >= maxFiles || w.ctx.Err() != nil {
		w.whole = false
	}
	return w.files >= maxFiles || w.ctx.Err() != nil
}

func statx(fd int, name string, flags int, stat *unix.Statx_t) error {
	_, err := eintr.Retry(func() (struct{}, error) {
		return struct{}{}, unix.Statx(fd, name, flags|unix.AT_STATX_DONT_SYNC, unix.STATX_BASIC_STATS|unix.STATX_MNT_ID, stat)
	})
	return err
}
