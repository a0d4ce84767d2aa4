package events

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/reeveproject/reeve/core/storage"
)

// earlier is added to the name of the file for the one before.
const earlier = ".1"

// minAside is what a file has at least when it is put aside, in bytes: more than its first line.
const minAside = 256

// disk is the files of a journal. One goroutine writes; any number may read what was written.
type disk struct {
	path string
	max  int64

	// Of the writer. file is nil while it is not open. torn says that the file does not end with a line, and aside that it is to be put aside, since
	// another version wrote it.
	file        *os.File
	torn, aside bool

	// mu guards the names of the files and what is known of them.
	mu sync.Mutex
	// number counts the files; the one before has the number below.
	number uint64
	// size is how much of the file is on disk for good, and earlierSize of the one before; -1: there is none.
	size, earlierSize int64
}

// found is what the end of the files says.
type found struct {
	// any is whether there is a file.
	any bool
	// sequence is the highest number that was given as far as the files say, and ended whether it is the last one by the word of the core that gave it.
	sequence uint64
	ended    bool
	// certain is the number up to which the next core knows of all, if this one writes nothing.
	certain uint64
	// foreign says that the file is of another version.
	foreign bool
}

// openDisk looks at the files. It makes none: a full disk is to be met where it is dealt with, by the writer.
func openDisk(path string, maxBytes int64) (*disk, found, error) {
	d := &disk{path: path, max: maxBytes, number: 2, size: -1, earlierSize: -1}
	var f found
	before, err := storage.OpenRegular(path+earlier, os.O_RDONLY)
	if err == nil {
		defer func() { _ = before.Close() }()
		f.any = true
		d.earlierSize, err = before.Seek(0, io.SeekEnd)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, f, err
	}
	file, err := storage.OpenRegular(path, os.O_RDWR|os.O_APPEND)
	if err == nil {
		f.any = true
		if err = d.takeUp(file, &f); err != nil {
			err = errors.Join(err, file.Close())
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, f, err
	}
	if f.sequence == 0 && before != nil {
		last, err := lastLine(before, d.earlierSize)
		if err != nil {
			return nil, f, err
		}
		f.sequence, f.certain = last.sequence, last.sequence
	}
	return d, f, nil
}

// takeUp goes on with a file that is there.
func (d *disk) takeUp(file *os.File, f *found) error {
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	last, err := lastLine(file, size)
	if err != nil {
		return err
	}
	f.sequence, f.certain, f.ended, f.foreign = last.sequence, last.sequence, last.ended, !ours(file)
	if last.ended {
		// The word of the core before holds until this one gives a number: it is taken back before that, which a full disk does not hinder.
		size = last.offset
		if last, err = lastLine(file, size); err != nil {
			return err
		}
		f.certain = last.sequence
		if err := errors.Join(file.Truncate(size), file.Sync()); err != nil {
			return fmt.Errorf("its last line cannot be taken back: %w", err)
		}
	}
	d.file, d.size, d.aside = file, size, f.foreign
	d.torn, err = torn(file, size)
	return err
}

// torn reports whether a file of that size does not end with the end of a line.
func torn(file io.ReaderAt, size int64) (bool, error) {
	if size == 0 {
		return false, nil
	}
	var end [1]byte
	_, err := file.ReadAt(end[:], size-1)
	return end[0] != '\n', err
}

// write puts whole lines at the end of the file, which begins anew if it is large enough, and returns when they are there for good. If it fails, nothing of
// them is taken to be there. after is the number before those of the lines.
func (d *disk) write(lines []byte, after uint64) error {
	if d.aside || d.size > minAside && d.size+int64(len(lines)) > d.max {
		if err := d.putAside(); err != nil {
			return err
		}
	}
	if d.file == nil {
		if err := d.open(after); err != nil {
			return err
		}
	}
	if d.torn {
		lines = append([]byte{'\n'}, lines...)
	}
	_, err := d.file.Write(lines)
	if err == nil {
		err = d.file.Sync()
	}
	if err != nil {
		// What was written of them goes. Where that fails, too, they are there twice, which readers see by the numbers. What the kernel could not
		// write it does not try to write again through this file.
		err = errors.Join(err, d.file.Truncate(d.size), d.file.Close())
		d.file = nil
		return err
	}
	d.torn = false
	d.mu.Lock()
	d.size += int64(len(lines))
	d.mu.Unlock()
	return nil
}

// open opens the file, or makes it.
func (d *disk) open(after uint64) error {
	file, err := storage.OpenRegular(d.path, os.O_RDWR|os.O_APPEND|os.O_CREATE)
	if err != nil {
		return err
	}
	size, err := file.Seek(0, io.SeekEnd)
	if err == nil && size == 0 {
		size, err = begin(file, after)
	}
	ragged := false
	if err == nil {
		ragged, err = torn(file, size)
	}
	if err == nil {
		err = storage.SyncDirectory(filepath.Dir(d.path))
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.file, d.size, d.torn = file, size, ragged
	return nil
}

// begin writes the first line of a file, or nothing.
func begin(file *os.File, after uint64) (int64, error) {
	line, err := mark{Version: version, After: after}.line()
	if err != nil {
		return 0, err
	}
	if _, err := file.Write(line); err != nil {
		return 0, errors.Join(err, file.Truncate(0))
	}
	return int64(len(line)), nil
}

// putAside renames the file to the one before.
func (d *disk) putAside() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := os.Rename(d.path, d.path+earlier); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if d.file != nil {
		// Everything in it was synced.
		_ = d.file.Close()
		d.file = nil
	}
	d.number++
	d.earlierSize, d.size = d.size, -1
	d.torn, d.aside = false, false
	return nil
}

// close closes the file.
func (d *disk) close() error {
	if d.file == nil {
		return nil
	}
	err := d.file.Close()
	d.file = nil
	return err
}

// next opens the oldest file that is there and has at least the number, and says how much of it is there for good, and whether a later one is; nil: there is none.
func (d *disk) next(number uint64) (file *os.File, found uint64, size int64, later bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if found, size = d.number-1, d.earlierSize; size >= 0 && found >= number {
		if file, err = storage.OpenRegular(d.path+earlier, os.O_RDONLY); !errors.Is(err, fs.ErrNotExist) {
			return file, found, size, d.size >= 0, err
		}
	}
	if found, size = d.number, d.size; size < 0 || found < number {
		return nil, 0, 0, false, nil
	}
	if file, err = storage.OpenRegular(d.path, os.O_RDONLY); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return file, found, size, false, err
}
