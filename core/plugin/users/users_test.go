package users

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/reeveproject/reeve/core/plugin/plugintest"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// hostRanges is the host's own ranges file, so that the tests of several packages and the nodes of the host never share a user ID.
const hostRanges = "/var/lib/reeve/uid-ranges"

// ranges is a ranges file of the test's own, and a directory for owners. No process may run under the IDs that it hands out: they are others' too.
func ranges(t *testing.T) (file, dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root has user IDs to give")
	}
	dir = plugintest.Dir(t)
	return filepath.Join(dir, "ranges", "uid-ranges"), dir
}

func reserve(t *testing.T, file, dir, name string) *Users {
	t.Helper()
	owner := filepath.Join(dir, name)
	if err := os.MkdirAll(owner, 0o755); err != nil {
		t.Fatal(err)
	}
	users, err := Reserve(file, filepath.Join(owner, "uids.json"), owner, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = users.Close() })
	return users
}

// end lets go of a range, as a core does that ends.
func end(t *testing.T, users *Users) {
	t.Helper()
	if err := users.Close(); err != nil {
		t.Fatal(err)
	}
}

func uidOf(t *testing.T, users *Users, role string) uint32 {
	t.Helper()
	uid, gid, err := users.Of(role)
	if err != nil || uid != gid {
		t.Fatalf("user %d, group %d: %v", uid, gid, err)
	}
	return uid
}

func TestUsersAreKept(t *testing.T) {
	t.Parallel()
	file, dir := ranges(t)
	a, b := reserve(t, file, dir, "a"), reserve(t, file, dir, "b")
	one, two := uidOf(t, a, "one"), uidOf(t, a, "two")
	if one == two || one < 1879048192 || uidOf(t, b, "one")-one < 1024 && one-uidOf(t, b, "one") < 1024 {
		t.Errorf("users %d, %d, and %d of another node", one, two, uidOf(t, b, "one"))
	}
	end(t, a)
	again := reserve(t, file, dir, "a")
	if uidOf(t, again, "two") != two || uidOf(t, again, "one") != one {
		t.Error("a role has another user than before")
	}
	if three := uidOf(t, again, "three"); three == one || three == two {
		t.Errorf("a user was given twice: %d", three)
	}
}

func TestRangesOfGoneOwnersAreReused(t *testing.T) {
	t.Parallel()
	_, dir := ranges(t)
	file := hostRanges // a process runs under one of the IDs, so they must be nobody else's
	gone, kept := reserve(t, file, dir, "gone"), reserve(t, file, dir, "kept")
	uid := uidOf(t, gone, "one")
	cmd := exec.Command("sleep", "1000")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid, Groups: []uint32{}}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "gone")); err != nil {
		t.Fatal(err)
	}
	end(t, gone)
	early := reserve(t, file, dir, "early")
	if uidOf(t, early, "one") == uid {
		t.Error("a range was given away while a process used it")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	late := reserve(t, file, dir, "late")
	if got := uidOf(t, late, "one"); got == uidOf(t, early, "one") || got == uidOf(t, kept, "one") {
		t.Errorf("user %d belongs to two nodes", got)
	}
}

// A node whose directory others do not see has its range as long as its core runs, and so has each of two nodes whose directories have the same path, in mount
// namespaces of their own.
func TestRangeOfACoreThatRuns(t *testing.T) {
	t.Parallel()
	file, dir := ranges(t)
	hidden := reserve(t, file, dir, "node")
	if err := os.Rename(filepath.Join(dir, "node"), filepath.Join(dir, "elsewhere")); err != nil {
		t.Fatal(err)
	}
	other, same := reserve(t, file, dir, "other"), reserve(t, file, dir, "node")
	all := map[uint32]bool{uidOf(t, hidden, "one"): true, uidOf(t, other, "one"): true, uidOf(t, same, "one"): true}
	if len(all) != 3 {
		t.Errorf("two nodes that run have the same users: %v", all)
	}
	var taken *RangeError
	chosen := &nodev1.UserRange{First: uidOf(t, hidden, "one"), Count: 16}
	if _, err := Reserve(file, filepath.Join(dir, "other", "uids.json"), filepath.Join(dir, "other"), chosen); !errors.As(err, &taken) {
		t.Errorf("a range was chosen that a core holds: %v", err)
	}
	// With their cores, the nodes that nobody sees lose their ranges, and each of the others keeps its own.
	kept := uidOf(t, other, "one")
	end(t, hidden)
	end(t, same)
	end(t, other)
	if err := os.RemoveAll(filepath.Join(dir, "node")); err != nil {
		t.Fatal(err)
	}
	next := reserve(t, file, dir, "next")
	if uid := uidOf(t, next, "one"); uid == kept {
		t.Errorf("user %d belongs to two nodes", uid)
	}
	if uid := uidOf(t, reserve(t, file, dir, "other"), "one"); uid != kept {
		t.Errorf("user %d, and before %d", uid, kept)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if owner := filepath.Join(dir, "node"); strings.Contains(string(content), owner+`"`) {
		t.Errorf("a row of a node that is gone is left: %s", content)
	}
	if locks, err := os.ReadDir(file + ".locks"); err != nil || len(locks) > 2 {
		t.Errorf("%v, %v", locks, err)
	}
}

func TestRangesAreReservedOneAtATime(t *testing.T) {
	t.Parallel()
	file, dir := ranges(t)
	var group sync.WaitGroup
	var mu sync.Mutex
	seen := make(map[uint32]bool)
	for _, name := range strings.Split("abcdefgh", "") {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		group.Go(func() {
			users, err := Reserve(file, filepath.Join(dir, name, "uids.json"), filepath.Join(dir, name), nil)
			if err != nil {
				t.Error(err)
				return
			}
			uid, _, err := users.Of("one")
			mu.Lock()
			defer mu.Unlock()
			if err != nil || seen[uid] {
				t.Errorf("user %d again (%v)", uid, err)
			}
			seen[uid] = true
		})
	}
	group.Wait()
}

func TestRangesFileIsNotGuessedAt(t *testing.T) {
	t.Parallel()
	file, dir := ranges(t)
	end(t, reserve(t, file, dir, "a"))
	for _, content := range []string{"", "{", `{"version":2,"ranges":[]}`} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Reserve(file, filepath.Join(dir, "a", "uids.json"), filepath.Join(dir, "a"), nil); err == nil {
			t.Errorf("%q was accepted", content)
		}
		if now, err := os.ReadFile(file); err != nil || string(now) != content {
			t.Errorf("%q was replaced by %q", content, now)
		}
	}
}

func TestOrdinaryUsersShare(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("this is root")
	}
	users, err := Reserve("/nonexistent/ranges", "/nonexistent/uids", "/nonexistent", nil)
	if err != nil {
		t.Fatal(err)
	}
	if uid := func() uint32 { uid, _, _ := users.Of("one"); return uid }(); !users.Shared() || uid != uint32(os.Geteuid()) {
		t.Errorf("user %d", uid)
	}
}
