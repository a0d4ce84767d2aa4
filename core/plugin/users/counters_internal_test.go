package users

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestNumbersOnAFullVolume(t *testing.T) {
	t.Parallel()
	data, run := t.TempDir(), t.TempDir()
	if err := unix.Mount("none", data, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("cannot run: there is no disk to fill: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(data, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	volume, spare := filepath.Join(data, "counters.json"), filepath.Join(run, "counters.json")
	next := func(role string, want uint64) {
		t.Helper()
		c, err := OpenCounters(volume, spare)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := c.Next(role); err != nil || n != want {
			t.Fatalf("number %d, %v, want %d", n, err, want)
		}
	}
	next("a", 1)
	filler := filepath.Join(data, "filler")
	if err := os.WriteFile(filler, make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the volume is not full: %v", err)
	}
	next("a", 2)
	next("b", 1)
	next("a", 3)
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	next("b", 2)
	next("a", 4)
	// What the run directory held is on the volume by now.
	if err := os.Remove(spare); err != nil {
		t.Fatal(err)
	}
	next("b", 3)
	// Without any room at all, there is no number.
	c, err := OpenCounters(volume, filepath.Join(run, "none", "counters.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filler, make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the volume is not full: %v", err)
	}
	if n, err := c.Next("a"); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), volume) {
		t.Errorf("number %d, %v", n, err)
	}
}
