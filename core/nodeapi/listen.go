package nodeapi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// socketMode admits the core's user, and root, who needs no mode.
const socketMode = 0o600

// maxSocketPath is the kernel's limit: 108 bytes with the zero at the end.
const maxSocketPath = 107

// listenLocal listens on the local socket, replacing one that is left over.
func listenLocal(path string) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("nodeapi: the path of the node's socket, %s, is %d bytes long, and the kernel takes %d: choose a shorter run directory",
			path, len(path), maxSocketPath)
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("nodeapi: the node's socket: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("nodeapi: %s is in the way of the node's socket and is none itself (%s): move it away", path, info.Mode())
	default:
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("nodeapi: the socket that an earlier core left: %w", err)
		}
	}
	// The mode is set before bind, which makes the file with it: there is no moment at which others could open it, and no umask of
	// the whole process needs to change.
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var chmod error
		if err := raw.Control(func(fd uintptr) { chmod = unix.Fchmod(int(fd), socketMode) }); err != nil {
			return err
		}
		return chmod
	}}
	listener, err := config.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, fmt.Errorf("nodeapi: the node's socket: %w", err)
	}
	// A umask can only have taken bits away.
	if err := os.Chmod(path, socketMode); err != nil {
		return nil, errors.Join(fmt.Errorf("nodeapi: the node's socket: %w", err), listener.Close())
	}
	return listener, nil
}
