package dev_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/cli/dev"
	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/target"
)

// A directory that was moved is the same cluster at another place, whatever is at the former one.
func TestMovedDirectory(t *testing.T) {
	root, plan, places := makePlan(t)
	a, b := filepath.Join(root, "a place"), filepath.Join(root, "b")
	first, err := dev.Make(a, plan, places)
	if err != nil {
		t.Fatal(err)
	}
	node, err := first.MakeNode(2, "a ticket", "", places)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(a, b); err != nil {
		t.Fatal(err)
	}
	// Another cluster is at the former place.
	other, err := dev.Make(a, plan, places)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := target.DialLocal(t.Context(), b); err != target.ErrNotRunning {
		t.Errorf("the run directory is that of the former place: %v", err)
	}
	moved, err := dev.Make(b, plan, places)
	if err != nil {
		t.Fatal(err)
	}
	text := moved.Parameters.String()
	if strings.Contains(text, a+"/") || !strings.Contains(text, b+"/system") || !strings.Contains(text, b+"/hosts") {
		t.Errorf("%s", text)
	}
	if run := moved.Parameters.GetDirectories().GetRun(); run == other.Parameters.GetDirectories().GetRun() || filepath.Dir(run) != places.Run {
		t.Errorf("its run directory is %s", run)
	}
	if moved.Parameters.GetBootstrap().String() != first.Parameters.GetBootstrap().String() {
		t.Error("it is another cluster")
	}
	others, err := moved.Others()
	if err != nil || len(others) != 1 {
		t.Fatalf("%v, %v", others, err)
	}
	text = others[0].Parameters.String()
	if strings.Contains(text, a+"/") || strings.Contains(text, node.Parameters.GetDirectories().GetRun()) || !strings.Contains(text, b+"/nodes/2/ticket") {
		t.Errorf("%s", text)
	}
	if configuration := others[0].Parameters.GetRegister().GetRoles(); !strings.Contains(configuration[2].GetConfiguration(), b+"/nodes/2/hosts") {
		t.Errorf("%v", configuration)
	}
	if was, err := moved.Moved(); err != nil || len(was) != 1 || was[0] != a {
		t.Errorf("%v, %v", was, err)
	}
	if err := moved.Told(); err != nil {
		t.Fatal(err)
	}
	again, err := dev.Make(b, plan, places)
	if err != nil || again.Parameters.String() != moved.Parameters.String() {
		t.Errorf("%v", err)
	}
	if was, err := again.Moved(); err != nil || len(was) > 0 {
		t.Errorf("%v, %v", was, err)
	}
}

// Only the paths of a configuration change.
func TestMovedPath(t *testing.T) {
	for text, want := range map[string]string{
		"/a/file":                    "/b/file",
		"/ab/file":                   "/ab/file",
		"about /a/file":              "about /a/file",
		`{"size":1,"file":"/a/f"} x`: `{"size":1,"file":"/a/f"} x`,
		`{"file":"/a/<f>&","serial":9007199254740993}`: `{"file":"/b/<f>&","serial":9007199254740993}`,
	} {
		if got := dev.MovedPath(text, "/a", "/b"); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// A copy of a directory is refused by every command, before it does anything to the original.
func TestCopiedDirectory(t *testing.T) {
	root, plan, places := makePlan(t)
	a, b := filepath.Join(root, "a"), filepath.Join(root, "b")
	if _, err := dev.Make(a, plan, places); err != nil {
		t.Fatal(err)
	}
	if output, err := exec.Command("cp", "-a", a, b).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	before, err := os.ReadFile(filepath.Join(b, "reeved.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func() error{
		"up":     func() error { _, err := dev.Make(b, plan, places); return err },
		"find":   func() error { _, err := dev.Find(b); return err },
		"down":   func() error { _, err := dev.Down(t.Context(), b, "/nowhere/reeved", 0); return err },
		"leave":  func() error { _, err := dev.Leave(t.Context(), b, false); return err },
		"status": func() error { _, err := target.Open(t.Context(), target.Options{Dir: b}); return err },
	} {
		err := call()
		if fault.CodeOf(err) != fault.Refused || !strings.Contains(err.Error(), b+" is a copy of the dev directory "+a) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if after, err := os.ReadFile(filepath.Join(b, "reeved.yaml")); err != nil || string(after) != string(before) {
		t.Errorf("it was changed: %v", err)
	}
	// The original is gone: this is what is left of it, as where it was moved to another file system.
	if err := os.RemoveAll(a); err != nil {
		t.Fatal(err)
	}
	if moved, err := dev.Make(b, plan, places); err != nil || !strings.Contains(moved.Parameters.String(), b+"/system") {
		t.Errorf("%v", err)
	}
}

// A file system that is new has a directory lost+found.
func TestNewFileSystem(t *testing.T) {
	root, plan, places := makePlan(t)
	path := filepath.Join(root, "d")
	if err := os.MkdirAll(filepath.Join(path, "lost+found"), 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := dev.Make(path, plan, places); err != nil {
			t.Fatal(err)
		}
	}
}

// A directory that was moved, and moved again, before or after its node was started in between, is the same cluster. So it is back at its first place.
func TestMovedTwice(t *testing.T) {
	root, plan, places := makePlan(t)
	at := func(name string) string { return filepath.Join(root, name) }
	first, err := dev.Make(at("a"), plan, places)
	if err != nil {
		t.Fatal(err)
	}
	for _, way := range [][]string{{"a", "b", "c"}, {"c", "d"}, {"d", "e", "a"}} {
		for i := range len(way) - 1 {
			if err := os.Rename(at(way[i]), at(way[i+1])); err != nil {
				t.Fatal(err)
			}
		}
		last := at(way[len(way)-1])
		now, err := dev.Make(last, plan, places)
		if err != nil {
			t.Fatalf("%v: %v", way, err)
		}
		if now.Parameters.GetDirectories().GetSystem() != filepath.Join(last, "system") || now.Parameters.GetBootstrap().String() != first.Parameters.GetBootstrap().String() {
			t.Errorf("%v: %s", way, now.Parameters)
		}
	}
	// The cluster hears of each place at which the directory was when its node ran.
	now, err := dev.Find(at("a"))
	if err != nil {
		t.Fatal(err)
	}
	if former, err := now.Moved(); err != nil || strings.Join(former, " ") != strings.Join([]string{at("a"), at("c"), at("d")}, " ") {
		t.Errorf("%q, %v", former, err)
	}
}
