package fscrypt_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/core/inorder"
	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/core/storage/volume"
)

// both runs a test on the two places that a volume may have.
func both(t *testing.T, test func(t *testing.T, n node)) {
	t.Helper()
	for name, image := range inorder.Of(map[string]bool{"image": true, "directory": false}) {
		t.Run(name, func(t *testing.T) { test(t, newNode(t, image)) })
	}
}

func TestLife(t *testing.T) {
	both(t, func(t *testing.T, n node) {
		key, raw := newKey(t)
		kind := n.kind(nil)
		if d := kind.Describe(); d.Kind != storage.Fscrypt || !d.Encrypted || d.KeySize != len(raw) || d.Location == "" {
			t.Errorf("description %+v", d)
		}
		wantState(t, kind, volume.Absent)
		timed(t, "format", func() error { return kind.Format(t.Context(), key) })
		wantState(t, kind, volume.Closed)
		const secret, name = "the secret that nobody else may read", "the-name-of-the-file"
		content := bytes.Repeat([]byte(secret), 1000)
		for round := range 2 {
			timed(t, "open", func() error { return kind.Open(t.Context(), key) })
			must(t, kind.Open(t.Context(), key))
			wantState(t, kind, volume.Open)
			path := filepath.Join(n.data(), name)
			if round == 0 {
				must(t, os.WriteFile(path, content, 0o600))
			}
			if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, content) {
				t.Fatalf("round %d: %d bytes, %v", round, len(got), err)
			}
			timed(t, "close", func() error { return kind.Close(t.Context()) })
			must(t, kind.Close(t.Context()))
			wantState(t, kind, volume.Closed)
			if _, err := os.Stat(path); err == nil {
				t.Error("a name can be read after closing")
			}
		}
		if n.image {
			notIn(t, n.file(), []byte(secret), raw, raw[:32], raw[32:], []byte(name))
			if out := run(t, "losetup", "--associated", n.file()); out != "" {
				t.Errorf("still attached: %s", out)
			}
		}
	})
}

func timed(t *testing.T, what string, do func() error) {
	t.Helper()
	start := time.Now()
	must(t, do())
	t.Logf("%s: %v", what, time.Since(start).Round(time.Millisecond/10))
}

// notIn fails if a file holds one of the needles.
func notIn(t *testing.T, path string, needles ...[]byte) {
	t.Helper()
	if found := search(t, path, needles...); found != nil {
		t.Fatalf("%s holds %q", path, found)
	}
}

// search returns one of the needles that a file holds, nil if it holds none.
func search(t *testing.T, path string, needles ...[]byte) []byte {
	t.Helper()
	file, err := os.Open(path)
	must(t, err)
	defer func() { _ = file.Close() }()
	const overlap = 4096
	chunk := make([]byte, 4<<20)
	kept := 0
	for {
		n, err := io.ReadFull(file, chunk[kept:])
		for _, needle := range needles {
			if bytes.Contains(chunk[:kept+n], needle) {
				return needle
			}
		}
		if err != nil {
			return nil
		}
		copy(chunk, chunk[len(chunk)-overlap:])
		kept = overlap
	}
}

// What the search does not find in a closed volume, it does find where it is: also between two of its pieces, and in a volume that is not encrypted.
func TestSearch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	needle := []byte("needle")
	content := make([]byte, 9<<20)
	copy(content[4<<20-3:], needle)
	must(t, os.WriteFile(path, content, 0o600))
	if search(t, path, []byte("other"), needle) == nil || search(t, path, []byte("other")) != nil {
		t.Error("not found, or found what is not there")
	}
	needRoot(t)
	n := newNode(t, true)
	key, raw := newKey(t)
	kind := n.kind(nil)
	must(t, kind.Format(t.Context(), key))
	must(t, kind.Open(t.Context(), key))
	// Beside the encrypted directory.
	must(t, os.WriteFile(filepath.Join(n.mount(), "beside-it"), raw, 0o600))
	must(t, kind.Close(t.Context()))
	if search(t, n.file(), raw) == nil || search(t, n.file(), []byte("beside-it")) == nil {
		t.Error("what is not encrypted is not found in the image")
	}
}

func TestModes(t *testing.T) {
	n := newNode(t, true)
	key, _ := newKey(t)
	kind := n.kind(nil)
	must(t, kind.Format(t.Context(), key))
	must(t, kind.Open(t.Context(), key))
	for _, path := range []string{n.mount(), n.data()} {
		mount, err := volume.MountAt(path)
		if err != nil || mount == nil {
			t.Fatalf("%s: %+v, %v", path, mount, err)
		}
		if options := strings.Join(mount.Options, ","); !strings.Contains(options, "nosuid") || !strings.Contains(options, "nodev") {
			t.Errorf("%s is mounted %s", path, options)
		}
	}
	for path, want := range map[string]os.FileMode{n.mount(): 0o700, n.file(): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	device := run(t, "losetup", "--noheadings", "--output", "AUTOCLEAR,DIO", "--associated", n.file())
	if strings.Join(strings.Fields(device), "") != "11" {
		t.Logf("loop device without autoclear or direct I/O: %q", device)
	}
	if !strings.HasPrefix(strings.TrimSpace(device), "1") {
		t.Error("the loop device does not let go of its file by itself")
	}
	must(t, kind.Close(t.Context()))
}

func TestWrongKey(t *testing.T) {
	both(t, func(t *testing.T, n node) {
		key, _ := newKey(t)
		other, _ := newKey(t)
		kind := n.kind(nil)
		must(t, kind.Format(t.Context(), key))
		if err := kind.Open(t.Context(), other); !errors.Is(err, volume.ErrWrongKey) {
			t.Fatalf("opened by another key: %v", err)
		}
		short, err := keys.NewSecret(32)
		must(t, err)
		if err := kind.Open(t.Context(), short); !errors.Is(err, volume.ErrWrongKey) {
			t.Fatalf("opened by half a key: %v", err)
		}
		wantState(t, kind, volume.Closed)
		must(t, kind.Close(t.Context()))
		must(t, kind.Open(t.Context(), key))
		must(t, kind.Close(t.Context()))
		var notEmpty *volume.NotEmptyError
		if err := kind.Format(t.Context(), other); !errors.As(err, &notEmpty) {
			t.Errorf("formatted again with another key: %v", err)
		}
		// The same call as before is what is made after an interruption.
		must(t, kind.Format(t.Context(), key))
		wantState(t, kind, volume.Closed)
		if err := kind.Rotate(t.Context(), key, other); !errors.Is(err, volume.ErrFixedKey) {
			t.Errorf("rotated: %v", err)
		}
	})
}

func TestNotEmpty(t *testing.T) {
	both(t, func(t *testing.T, n node) {
		key, _ := newKey(t)
		kind := n.kind(nil)
		photos := filepath.Join(n.data(), "photos")
		must(t, os.WriteFile(photos, []byte("of the family"), 0o600))
		var notEmpty *volume.NotEmptyError
		if err := kind.Format(t.Context(), key); !errors.As(err, &notEmpty) || notEmpty.Found != "photos" {
			t.Fatalf("formatted over photos: %v", err)
		}
		must(t, os.Remove(photos))
		must(t, kind.Format(t.Context(), key))
		if !n.image {
			return
		}
		must(t, os.WriteFile(photos, []byte("of the family"), 0o600))
		var damaged *volume.DamagedError
		if err := kind.Open(t.Context(), key); !errors.As(err, &damaged) || !strings.Contains(err.Error(), "photos") {
			t.Fatalf("mounted over photos: %v", err)
		}
		wantState(t, kind, volume.Closed)
	})
}

func TestBusy(t *testing.T) {
	tests := map[string]struct {
		use string
		// run starts a process that uses the file or its directory, and writes a line when it does.
		run func(n node, path string) *exec.Cmd
	}{
		"file": {use: "open", run: func(_ node, path string) *exec.Cmd { return shell("exec 3<" + path + "; echo; read x") }},
		"cwd":  {use: "working directory", run: func(n node, _ string) *exec.Cmd { return shell("cd " + n.data() + "; echo; read x") }},
		"map": {use: "mapped", run: func(_ node, path string) *exec.Cmd {
			return exec.Command("python3", "-c", "import mmap, sys\nf = open('"+path+"', 'rb')\nm = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)\nf.close()\nprint(flush=True)\nsys.stdin.read()")
		}},
		"socket": {use: "socket", run: func(n node, _ string) *exec.Cmd {
			return exec.Command("python3", "-c", "import socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.bind('"+n.data()+"/s')\nprint(flush=True)\nsys.stdin.read()")
		}},
		"namespace": {use: "mount", run: func(_ node, _ string) *exec.Cmd {
			return exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", "echo; read x")
		}},
	}
	for name, test := range inorder.Of(tests) {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, n node) {
				if !n.image && (name == "namespace" || name == "socket") {
					// Neither keeps a directory from being closed.
					return
				}
				key, _ := newKey(t)
				kind := n.kind(nil)
				must(t, kind.Format(t.Context(), key))
				must(t, kind.Open(t.Context(), key))
				path := filepath.Join(n.data(), "file")
				must(t, os.WriteFile(path, []byte("content"), 0o644))
				command := test.run(n, path)
				if command.Args[0] == "python3" {
					if _, err := exec.LookPath("python3"); err != nil {
						t.Skip("cannot run: python3 is not installed")
					}
				}
				end := started(t, command)
				err := closeImpatiently(t, kind)
				var busy *volume.BusyError
				if !errors.As(err, &busy) {
					t.Fatalf("closed although in use: %v", err)
				}
				found := false
				for _, user := range busy.Users {
					found = found || user.PID == command.Process.Pid && user.Use == test.use
				}
				if !found || !strings.Contains(err.Error(), busy.Users[0].Command) {
					t.Errorf("users %+v, %v", busy.Users, err)
				}
				// It stays usable for everybody.
				wantState(t, kind, volume.Open)
				must(t, os.WriteFile(filepath.Join(n.data(), "other"), []byte("content"), 0o644))
				end()
				must(t, kind.Close(t.Context()))
				wantState(t, kind, volume.Closed)
			})
		})
	}
}

// What is unmounted and held by a process with mounts of its own is not said to be usable, and not bound again.
func TestHeldWhenUnmounted(t *testing.T) {
	both(t, func(t *testing.T, n node) {
		if !n.image {
			return // a directory is not unmounted
		}
		key, _ := newKey(t)
		end := func() {}
		kind := n.kind(func(step string) {
			if step == "unmount" {
				end = started(t, exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", "echo; read x"))
			}
		})
		must(t, n.kind(nil).Format(t.Context(), key))
		must(t, kind.Open(t.Context(), key))
		var busy *volume.BusyError
		if err := closeImpatiently(t, kind); !errors.As(err, &busy) || !strings.Contains(err.Error(), "unmounted") || strings.Contains(err.Error(), "bind") {
			t.Errorf("closed, or why not: %v", err)
		}
		end()
		must(t, kind.Close(t.Context()))
		wantState(t, kind, volume.Closed)
	})
}

// closeImpatiently closes a volume that is in use. Every other close waits for what other tests of the machine have of its mounts for a moment.
func closeImpatiently(t *testing.T, kind volume.Kind) error {
	t.Helper()
	volume.Patience = impatience
	defer func() { volume.Patience = patience }()
	return kind.Close(t.Context())
}

func shell(script string) *exec.Cmd { return exec.Command("sh", "-c", script) }

// started starts a process, waits for its line, and returns what ends it.
func started(t *testing.T, command *exec.Cmd) func() {
	t.Helper()
	input, err := command.StdinPipe()
	must(t, err)
	output, err := command.StdoutPipe()
	must(t, err)
	must(t, command.Start())
	ended := false
	end := func() {
		if !ended {
			ended = true
			_ = input.Close()
			_ = command.Wait()
		}
	}
	t.Cleanup(end)
	if _, err := output.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return end
}
