package volume_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/storage/volume"
)

func TestMounting(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("cannot run: mounting needs root")
	}
	dir := own(t)
	target, link := filepath.Join(dir, "a b"), filepath.Join(dir, "link")
	must(t, os.Mkdir(target, 0o700))
	must(t, os.Symlink(target, link))
	must(t, volume.Unmount(target))
	for range 2 {
		must(t, unix.Mount("none", target, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, ""))
	}
	t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH); _ = unix.Unmount(target, unix.MNT_DETACH) })
	for _, path := range []string{target, link} {
		if mount, err := volume.MountAt(path); err != nil || mount == nil || mount.Type != "tmpfs" {
			t.Fatalf("%s: %+v, %v", path, mount, err)
		}
	}
	must(t, volume.Unmount(target))
	mount, err := volume.MountAt(target)
	if err != nil || mount == nil {
		t.Fatalf("both mounts are gone: %v", err)
	}
	inner := filepath.Join(target, "inner")
	must(t, os.Mkdir(inner, 0o700))
	other := filepath.Join(dir, "other")
	must(t, os.Mkdir(other, 0o700))
	must(t, volume.Bind(mount, "inner", other))
	if bound, err := volume.MountAt(other); err != nil || bound == nil || bound.Root != "/inner" || bound.Device != mount.Device {
		t.Errorf("bound: %+v, %v", bound, err)
	}
	// A mount below keeps its place from being unmounted, and is named.
	var busy *volume.BusyError
	must(t, volume.Unmount(other))
	must(t, unix.Mount("none", inner, "tmpfs", 0, ""))
	if err := volume.Release(t.Context(), target, "place", volume.Place{Device: mount.Device}); !errors.As(err, &busy) || !strings.Contains(err.Error(), inner) {
		t.Errorf("released: %v", err)
	}
	must(t, unix.Unmount(inner, 0))
	must(t, volume.Release(t.Context(), target, "place", volume.Place{Device: mount.Device}))
	if mount, err := volume.MountAt(target); err != nil || mount != nil {
		t.Errorf("still mounted: %+v, %v", mount, err)
	}
}

// A file system that is mounted as it should not be is not used.
func TestUnsafeMount(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("cannot run: mounting needs root")
	}
	dir := own(t)
	must(t, unix.Mount("none", dir, "tmpfs", 0, ""))
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	for _, name := range []string{"a", "b"} {
		must(t, os.Mkdir(filepath.Join(dir, name), 0o700))
	}
	mount, err := volume.MountAt(dir)
	must(t, err)
	if err := volume.Bind(mount, "a", filepath.Join(dir, "b")); err == nil || !strings.Contains(err.Error(), "nosuid") {
		t.Errorf("bound: %v", err)
	}
	must(t, unix.Unmount(filepath.Join(dir, "b"), 0))
}

func TestUsers(t *testing.T) {
	dir := own(t)
	file := filepath.Join(dir, "file")
	must(t, os.WriteFile(file, []byte("content"), 0o600))
	place, err := volume.DirectoryPlace(dir)
	must(t, err)
	if users, err := volume.Users(place); err != nil || len(users) > 0 {
		t.Fatalf("users of an idle directory: %+v, %v", users, err)
	}
	command := exec.Command("sh", "-c", "exec 5<file; echo; read x || true")
	command.Dir = dir
	input, err := command.StdinPipe()
	must(t, err)
	output, err := command.StdoutPipe()
	must(t, err)
	must(t, command.Start())
	_, err = output.Read(make([]byte, 1))
	must(t, err)
	users, err := volume.Users(place)
	must(t, err)
	want := map[volume.User]bool{
		{PID: command.Process.Pid, Command: "sh", Path: dir, Use: "working directory"}: true,
		{PID: command.Process.Pid, Command: "sh", Path: file, Use: "open"}:             true,
	}
	for _, user := range users {
		if !want[user] {
			t.Errorf("user %+v", user)
		}
		delete(want, user)
	}
	if len(want) > 0 {
		t.Errorf("not found: %v among %v", want, users)
	}
	// A directory whose name only begins alike is another place.
	must(t, os.Mkdir(dir+"x", 0o700))
	t.Cleanup(func() { _ = os.Remove(dir + "x") })
	other, err := volume.DirectoryPlace(dir + "x")
	must(t, err)
	if users, err := volume.Users(other); err != nil || len(users) > 0 {
		t.Errorf("users of a neighbour: %+v, %v", users, err)
	}
	text := (&volume.BusyError{Location: "place", Users: users}).Error()
	if !strings.Contains(text, "(sh): open "+file) {
		t.Errorf("error %s", text)
	}
	must(t, input.Close())
	must(t, command.Wait())
	if users, err := volume.Users(place); err != nil || len(users) > 0 {
		t.Errorf("users of a directory that was left: %+v, %v", users, err)
	}
	// However many there are, the error stays readable.
	many := &volume.BusyError{Location: "place", Users: make([]volume.User, 500)}
	if text := many.Error(); len(text) > 1000 || !strings.Contains(text, "492 more") {
		t.Errorf("error %s", text)
	}
}

func TestPlain(t *testing.T) {
	data := filepath.Join(own(t), "data")
	kind := volume.NewPlain(data)
	state := func(want volume.State) {
		t.Helper()
		if got, err := kind.State(t.Context()); err != nil || got != want {
			t.Fatalf("state %v, %v, want %v", got, err, want)
		}
	}
	if d := kind.Describe(); d.Encrypted || d.KeySize != 0 || d.Kind != "plain" || d.Location != data {
		t.Errorf("description %+v", d)
	}
	state(volume.Absent)
	if err := kind.Open(t.Context(), nil); err == nil {
		t.Error("opened what is not there")
	}
	must(t, kind.Format(t.Context(), nil))
	must(t, kind.Format(t.Context(), nil))
	must(t, os.WriteFile(filepath.Join(data, ".volume.json123"), nil, 0o600))
	must(t, os.Mkdir(filepath.Join(data, "lost+found"), 0o700))
	state(volume.Absent)
	must(t, kind.Format(t.Context(), nil))
	must(t, os.WriteFile(filepath.Join(data, "volume.json"), nil, 0o600))
	state(volume.Open)
	var notEmpty *volume.NotEmptyError
	if err := kind.Format(t.Context(), nil); !errors.As(err, &notEmpty) || notEmpty.Found != "volume.json" {
		t.Errorf("formatted again: %v", err)
	}
	must(t, kind.Open(t.Context(), nil))
	must(t, kind.Close(t.Context()))
	state(volume.Open)
	if err := kind.Rotate(t.Context(), nil, nil); !errors.Is(err, volume.ErrFixedKey) {
		t.Errorf("rotated: %v", err)
	}
}
