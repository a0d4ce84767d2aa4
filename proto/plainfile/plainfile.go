package plainfile

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Open opens a regular file for reading. It follows links. What is no regular file is an *fs.PathError that says what it is.
func Open(path string) (*os.File, error) {
	// With O_NONBLOCK, opening a named pipe does not wait for who writes to it.
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if errors.Is(err, unix.ENXIO) {
		return nil, refused(path, "a socket, or a device that is not there")
	}
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = refused(path, kind(info.Mode()))
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func refused(path, what string) error {
	return &fs.PathError{Op: "read", Path: path, Err: errors.New("it is " + what + ", and not a regular file")}
}

func kind(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeNamedPipe != 0:
		return "a pipe"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "something else"
}
