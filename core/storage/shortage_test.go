package storage_test

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/storage"
)

func TestShortage(t *testing.T) {
	l := storage.Layout{Data: t.TempDir()}
	mount := func(options string, flags uintptr) {
		t.Helper()
		if err := unix.Mount("none", l.Data, "tmpfs", flags, options); err != nil {
			t.Skipf("cannot run: there is no disk to fill: %v", err)
		}
	}
	mount("size=200m", 0)
	t.Cleanup(func() {
		if err := unix.Unmount(l.Data, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if got := l.Shortage(); got != "" {
		t.Errorf("with 200 MiB: %q", got)
	}
	mount("size=100m", unix.MS_REMOUNT)
	if got := l.Shortage(); !strings.Contains(got, l.Data+" has 100 MiB left") {
		t.Errorf("with 100 MiB: %q", got)
	}
	mount("size=200m,nr_inodes=1", unix.MS_REMOUNT)
	if got := l.Shortage(); !strings.Contains(got, "has no free inodes") {
		t.Errorf("without inodes: %q", got)
	}
	mount("size=200m", unix.MS_REMOUNT|unix.MS_RDONLY)
	if got := l.Shortage(); !strings.Contains(got, "mounted read-only") {
		t.Errorf("read-only: %q", got)
	}
	if got := (storage.Layout{Data: "/nonexistent"}).Shortage(); got != "" {
		t.Errorf("without a volume: %q", got)
	}
}
