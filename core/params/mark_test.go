package params_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/core/params"
)

// A mark is beside the parameters, or where the machine keeps what its firmware gives.
func TestMarkPath(t *testing.T) {
	for file, want := range map[string]string{"/etc/reeve/node.yaml": "/etc/reeve/node.yaml.made", params.FirmwareFile: "/etc/reeve/firmware.made"} {
		if got := params.MarkPath(file); got != want {
			t.Errorf("of %s: %s", file, got)
		}
	}
}

func TestMarkedParametersMakeNoOtherNode(t *testing.T) {
	file := filepath.Join(t.TempDir(), "node.yaml")
	parameters := parsed(t, good)
	mark := params.OpenMark(file)
	if err := mark.Check(parameters, ""); err != nil {
		t.Fatal(err)
	}
	if err := mark.Keep(parameters, "", "n1", "c1", filepath.Dir(file)); err != nil {
		t.Fatal(err)
	}
	first, err := os.Stat(params.MarkPath(file))
	if err != nil || first.Mode().Perm() != 0o400 {
		t.Fatalf("%v %v", first, err)
	}
	mark = params.OpenMark(file)
	var made *params.MarkedError
	if err := mark.Check(parameters, ""); !errors.As(err, &made) || made.NodeID != "n1" || made.ClusterID != "c1" || !strings.Contains(err.Error(), "--again") {
		t.Errorf("%v", err)
	}
	other := proto.CloneOf(parameters)
	other.GetBootstrap().OwnerPublicKey[0]++
	if err := errors.Join(mark.Check(other, ""), mark.Check(parameters, "a ticket")); err != nil {
		t.Errorf("others are taken for the same: %v", err)
	}
	if err := mark.Keep(parameters, "", "n1", "c1", filepath.Dir(file)); err != nil {
		t.Fatal(err)
	}
	if again, err := os.Stat(params.MarkPath(file)); err != nil || !os.SameFile(first, again) {
		t.Errorf("it was written again though nothing changed: %v", err)
	}
	// What is changed after the node was made counts from the next start on.
	if err := errors.Join(mark.Keep(other, "", "n1", "c1"), params.OpenMark(file).Check(parameters, "")); err != nil {
		t.Error(err)
	}
	if err := params.OpenMark(file).Check(other, ""); !errors.As(err, &made) {
		t.Errorf("%v", err)
	}
	if err := mark.Forget(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(mark.Check(other, ""), params.OpenMark(file).Check(other, "")); err != nil {
		t.Error(err)
	}
}

func TestDamagedMark(t *testing.T) {
	file := filepath.Join(t.TempDir(), "node.yaml")
	if err := os.WriteFile(params.MarkPath(file), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	parameters, mark := parsed(t, good), params.OpenMark(file)
	var damaged *params.ConsumedFileError
	if err := mark.Check(parameters, ""); !errors.As(err, &damaged) || damaged.Path != params.MarkPath(file) {
		t.Errorf("%v", err)
	}
	// A node that is there writes it anew.
	if err := errors.Join(mark.CheckMounts(params.Place{Path: "/", Missing: true}), mark.Keep(parameters, "", "n1", "c1")); err != nil {
		t.Fatal(err)
	}
	var made *params.MarkedError
	if err := params.OpenMark(file).Check(parameters, ""); !errors.As(err, &made) {
		t.Errorf("%v", err)
	}
}

func TestMountsOfAMark(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("cannot run: only root can mount")
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	file, disk := filepath.Join(dir, "node.yaml"), filepath.Join(dir, "disk")
	system := filepath.Join(disk, "system")
	if err := os.Mkdir(disk, 0o755); err != nil {
		t.Fatal(err)
	}
	mounted := func() {
		t.Helper()
		if err := errors.Join(unix.Mount("adisk", disk, "tmpfs", 0, ""), os.Mkdir(system, 0o700)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(disk, unix.MNT_DETACH) })
	}
	mounted()
	if err := params.OpenMark(file).Keep(parsed(t, good), "", "n1", "c1", system); err != nil {
		t.Fatal(err)
	}
	mark := params.OpenMark(file)
	missing := params.Place{Path: system, Missing: true}
	if err := mark.CheckMounts(missing); err != nil {
		t.Errorf("it is mounted: %v", err)
	}
	if err := unix.Unmount(disk, 0); err != nil {
		t.Fatal(err)
	}
	var lost *params.MountError
	err = mark.CheckMounts(missing)
	if !errors.As(err, &lost) || lost.Target != disk || lost.Path != system || lost.NodeID != "n1" || lost.FileSystem != "adisk (tmpfs)" {
		t.Errorf("%+v, %v", lost, err)
	}
	if err := errors.Join(mark.CheckMounts(params.Place{Path: system}), mark.CheckMounts(params.Place{Path: filepath.Join(disk, "data"), Missing: true})); err != nil {
		t.Errorf("what is there, or was never on the disk: %v", err)
	}
	// Whatever is mounted there instead, the parameters still make no other node.
	mounted()
	var made *params.MarkedError
	if err := mark.CheckMounts(missing); err != nil {
		t.Error(err)
	}
	if err := mark.Check(parsed(t, good), ""); !errors.As(err, &made) || !strings.Contains(err.Error(), "adisk (tmpfs), mounted at "+disk) {
		t.Errorf("%v", err)
	}
}
