package luks_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/core/inorder"
	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/core/storage/luks"
	"github.com/reeveproject/reeve/core/storage/volume"
)

func TestNames(t *testing.T) {
	other := "reeve-00112233445566778899aabbccddee00"
	if a, b := luks.UUID(nodeID), luks.UUID(other); a == b || len(a) != 36 || luks.UUID(nodeID) != a {
		t.Errorf("%s and %s", a, b)
	}
	if a, b := luks.MappingName(nodeID), luks.MappingName(other); a == b || !strings.HasPrefix(a, "reeve-") {
		t.Errorf("%s and %s", a, b)
	}
	d := luks.New(luks.Config{Device: "/dev/x", NodeID: nodeID}).Describe()
	if d.Kind != storage.LUKS || !d.Encrypted || d.Location != "/dev/x" || d.KeySize != luks.KeySize {
		t.Errorf("description %+v", d)
	}
}

// What is on a device is never written over, and is named.
func TestNotEmpty(t *testing.T) {
	key, raw := newKey(t)
	end := luks.MinSize
	tests := map[string]struct {
		fill func(t *testing.T, n node)
		want string
	}{
		"ext4":             {func(t *testing.T, n node) { run(t, "mkfs.ext4", "-q", "-F", n.device) }, "ext4"},
		"swap":             {func(t *testing.T, n node) { run(t, "mkswap", n.device) }, "swap"},
		"partitions":       {func(t *testing.T, n node) { n.write(t, "EFI PART", 512) }, "GPT"},
		"end of GPT":       {func(t *testing.T, n node) { n.write(t, "EFI PART", end-512) }, "second copy"},
		"one byte":         {func(t *testing.T, n node) { n.write(t, "x", 777_777) }, "first MiB"},
		"one byte at end":  {func(t *testing.T, n node) { n.write(t, "x", end-1) }, "last MiB"},
		"another's mark":   {func(t *testing.T, n node) { n.write(t, "reeve: a volume is being made here for x\n", end-4096) }, "last MiB"},
		"another's LUKS":   {func(t *testing.T, n node) { n.contain(t, luks.UUID("other"), "reeve", raw) }, luks.UUID("other")},
		"making another's": {func(t *testing.T, n node) { n.contain(t, luks.UUID("other"), "reeve-making", raw) }, luks.UUID("other")},
		"earlier life":     {func(t *testing.T, n node) { n.contain(t, luks.UUID(nodeID), "reeve", bytes.Repeat([]byte("x"), 64)) }, "another key"},
		"data":             {func(t *testing.T, n node) { must(t, os.WriteFile(filepath.Join(n.data(), "photos"), nil, 0o600)) }, "photos"},
		"mounted": {func(t *testing.T, n node) {
			run(t, "mkfs.ext4", "-q", "-F", n.device)
			other := filepath.Join(n.dir, "other")
			must(t, os.Mkdir(other, 0o700))
			// Read-only: a file system that may be written to writes its superblock whenever it likes.
			run(t, "mount", "-o", "ro,noload", n.device, other)
			t.Cleanup(func() { run(t, "umount", other) })
		}, "ext4"},
	}
	for name, test := range inorder.Of(tests) {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			test.fill(t, n)
			before := n.edges(t)
			var notEmpty *volume.NotEmptyError
			if err := n.kind().Format(t.Context(), key); !errors.As(err, &notEmpty) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("formatted: %v, want an error that says %q", err, test.want)
			}
			if n.edges(t) != before {
				t.Error("the device was written to")
			}
		})
	}
}

func TestState(t *testing.T) {
	_, raw := newKey(t)
	tests := map[string]struct {
		fill func(t *testing.T, n node)
		want volume.State
		text string
	}{
		"empty": {fill: func(*testing.T, node) {}, want: volume.Absent},
		"marked": {fill: func(t *testing.T, n node) {
			n.write(t, "reeve: a volume is being made here for "+nodeID+"\n", luks.MinSize-4096)
		}, want: volume.Absent},
		"in the making":   {fill: func(t *testing.T, n node) { n.contain(t, luks.UUID(nodeID), "reeve-making", raw) }, want: volume.Absent},
		"without a label": {fill: func(t *testing.T, n node) { n.contain(t, luks.UUID(nodeID), "", raw) }, want: volume.Absent},
		"complete":        {fill: func(t *testing.T, n node) { n.contain(t, luks.UUID(nodeID), "reeve", raw) }, want: volume.Closed},
		"another's":       {fill: func(t *testing.T, n node) { n.contain(t, luks.UUID("other"), "reeve", raw) }, text: "not this node's volume"},
		"overwritten":     {fill: func(t *testing.T, n node) { n.write(t, strings.Repeat("x", 4096), 0) }, text: "unknown kind"},
		"header overwritten": {fill: func(t *testing.T, n node) {
			n.contain(t, luks.UUID(nodeID), "reeve", raw)
			n.write(t, strings.Repeat("\x00", 4096), 0)
		}, text: "unknown kind"},
		"interrupted, random": {fill: func(t *testing.T, n node) {
			n.write(t, "x", 40000)
			n.write(t, "reeve: a volume is being made here for "+nodeID+"\n", luks.MinSize-4096)
		}, want: volume.Absent},
	}
	for name, test := range inorder.Of(tests) {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			test.fill(t, n)
			if test.text == "" {
				wantState(t, n.kind(), test.want)
				return
			}
			var damaged *volume.DamagedError
			if _, err := n.kind().State(t.Context()); !errors.As(err, &damaged) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("state: %v", err)
			}
			if err := n.kind().Open(t.Context(), nil); !errors.As(err, &damaged) {
				t.Errorf("opened: %v", err)
			}
		})
	}
	t.Run("missing", func(t *testing.T) {
		missing := luks.New(luks.Config{Device: "/dev/reeve-no-such-device", NodeID: nodeID})
		var damaged *volume.DamagedError
		if _, err := missing.State(t.Context()); !errors.As(err, &damaged) || !strings.Contains(err.Error(), "no such device") {
			t.Errorf("state: %v", err)
		}
	})
	t.Run("no device", func(t *testing.T) {
		if _, err := luks.New(luks.Config{Device: "/etc/passwd", NodeID: nodeID}).State(t.Context()); err == nil || !strings.Contains(err.Error(), "not a block device") {
			t.Errorf("state: %v", err)
		}
	})
	t.Run("too small", func(t *testing.T) {
		n := newNode(t)
		small := filepath.Join(n.dir, "small")
		must(t, os.WriteFile(small, nil, 0o600))
		must(t, os.Truncate(small, luks.MinSize-4096))
		device := run(t, "losetup", "--find", "--show", small)
		t.Cleanup(func() { run(t, "losetup", "--detach", device) })
		key, _ := newKey(t)
		var size *luks.SizeError
		if err := luks.New(luks.Config{Device: device, Data: n.data(), NodeID: nodeID}).Format(t.Context(), key); !errors.As(err, &size) {
			t.Errorf("formatted: %v", err)
		}
	})
}

// opens reports whether the key opens the container, asked of cryptsetup itself.
func (n node) opens(key []byte) bool {
	command := exec.Command("/usr/sbin/cryptsetup", "open", "--test-passphrase", "--key-file", "-", n.device)
	command.Stdin = bytes.NewReader(key)
	return command.Run() == nil
}

func TestRotate(t *testing.T) {
	n := newNode(t)
	first, rawFirst := newKey(t)
	second, rawSecond := newKey(t)
	third, _ := newKey(t)
	n.contain(t, luks.UUID(nodeID), "reeve", rawFirst)
	rotated := func(old, next *keys.Secret) {
		t.Helper()
		timed(t, "rotate", func() error { return n.kind().Rotate(t.Context(), old, next) })
	}
	only := func(yes, no []byte) {
		t.Helper()
		if !n.opens(yes) || n.opens(no) {
			t.Fatalf("opens: the one that should %v, the other one %v", n.opens(yes), n.opens(no))
		}
	}
	rotated(first, second)
	only(rawSecond, rawFirst)
	// Again, as after an interruption that came when it was done.
	rotated(first, second)
	rotated(second, second)
	only(rawSecond, rawFirst)
	if err := n.kind().Rotate(t.Context(), third, first); !errors.Is(err, volume.ErrWrongKey) {
		t.Fatalf("rotated by a key that does not open it: %v", err)
	}
	if err := n.kind().Rotate(t.Context(), third, third); !errors.Is(err, volume.ErrWrongKey) {
		t.Fatalf("rotated by a key that does not open it: %v", err)
	}
	only(rawSecond, rawFirst)
	// Interrupted when both open it.
	dir := t.TempDir()
	next := filepath.Join(dir, "next")
	must(t, os.WriteFile(next, rawFirst, 0o600))
	command := exec.Command("/usr/sbin/cryptsetup", "luksAddKey", "--batch-mode", "--key-file", "-", "--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000", n.device, next)
	command.Stdin = bytes.NewReader(rawSecond)
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	rotated(second, first)
	only(rawFirst, rawSecond)
	// Killed before its step.
	if _, err := n.call(t, "rotate", rawFirst, rawSecond, 1); err == nil {
		t.Fatal("not killed")
	}
	only(rawFirst, rawSecond)
	rotated(first, second)
	only(rawSecond, rawFirst)
}

func TestNoMapper(t *testing.T) {
	if hasMapper() {
		t.Skip("cannot run: this kernel has the device mapper")
	}
	n := newNode(t)
	key, raw := newKey(t)
	var missing *luks.NoMapperError
	if err := n.kind().Format(t.Context(), key); !errors.As(err, &missing) {
		t.Fatalf("formatted: %v", err)
	}
	// Nothing was begun that cannot be brought to an end.
	if strings.Trim(n.edges(t), "\x00") != "" {
		t.Error("the device was written to")
	}
	n.contain(t, luks.UUID(nodeID), "reeve", raw)
	if err := n.kind().Open(t.Context(), key); !errors.As(err, &missing) {
		t.Fatalf("opened: %v", err)
	}
	// Formatted before, so there is nothing to do.
	must(t, n.kind().Format(t.Context(), key))
}

func TestOrdinaryUser(t *testing.T) {
	needPrograms(t)
	dir, err := os.MkdirTemp("/tmp", "reeve-luks-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	own, err := os.Executable()
	must(t, err)
	executable := filepath.Join(dir, "test")
	run(t, "cp", own, executable)
	_, raw := newKey(t)
	for _, action := range []string{"format", "open", "close", "rotate"} {
		command := exec.Command(executable)
		ordinary(command)
		command.Dir = "/"
		text := hex.EncodeToString(raw)
		command.Env = []string{callEnv + "=" + strings.Join([]string{action, "/dev/loop0", dir, text, text, "0"}, "|")}
		if output, err := command.CombinedOutput(); err == nil || !strings.Contains(string(output), "needs root") {
			t.Errorf("%s: %v, %s", action, err, output)
		}
	}
}
