package plugin

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/reeveproject/reeve/sdk/peercred"
)

// A role may put a link where its socket was: the core does not even knock at the other door.
func TestConnectFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	socket, link, file := filepath.Join(dir, "s"), filepath.Join(dir, "l"), filepath.Join(dir, "f")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	if err := errors.Join(os.Symlink(socket, link), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	conn, err := connect(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	if conn, err := connect(t.Context(), link); !errors.Is(err, syscall.ELOOP) && !errors.Is(err, ErrPeer) {
		t.Errorf("through a link: %v, %v", conn, err)
	}
	if conn, err := connect(t.Context(), file); !errors.Is(err, ErrPeer) {
		t.Errorf("a file: %v, %v", conn, err)
	}
}

// TestPathOfASocketIsCleaned: a role says where its socket is, and people read of it in their terminals.
func TestPathOfASocketIsCleaned(t *testing.T) {
	l := &Launcher{patience: Patience{Connect: time.Millisecond}}
	_, err := l.dial(t.Context(), filepath.Join(t.TempDir(), "s\x1b[2J"), func(peercred.Peer) error { return nil })
	if err == nil || !strings.HasSuffix(err.Error(), `/s\x1b[2J does not answer`) {
		t.Errorf("the error is %q", err)
	}
}
