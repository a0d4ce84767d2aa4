package plainfile_test

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/proto/plainfile"
)

// A file is opened, through links too. A pipe that nobody writes to, a device, a socket and a directory are refused at once.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.WriteFile(path("file"), []byte("here"), 0o600), os.Symlink("file", path("link")), unix.Mkfifo(path("pipe"), 0o600),
		os.Symlink("pipe", path("link-to-pipe")), os.Symlink("/dev/zero", path("device"))); err != nil {
		t.Fatal(err)
	}
	socket, err := new(net.ListenConfig).Listen(t.Context(), "unix", path("socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	for _, name := range []string{"file", "link"} {
		file, err := plainfile.Open(path(name))
		if err != nil {
			t.Fatal(err)
		}
		if content, err := io.ReadAll(file); err != nil || string(content) != "here" {
			t.Errorf("%s: %q, %v", name, content, err)
		}
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	}
	for name, what := range map[string]string{"pipe": "a pipe", "link-to-pipe": "a pipe", "device": "a device", "socket": "a socket", ".": "a directory"} {
		file, err := plainfile.Open(path(name))
		var refused *fs.PathError
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), "it is "+what) || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			_ = file.Close()
		}
	}
	if _, err := plainfile.Open(path("none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is not there: %v", err)
	}
}
