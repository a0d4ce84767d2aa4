package store_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

func TestOpenAgainKeepsMemberAndData(t *testing.T) {
	directory := storetest.Directory(t)
	ctx := storetest.Context(t)
	s, stop := storetest.Open(t, directory, storetest.Plan)
	member := s.MemberID()
	if _, err := s.Client().Put(store.Root(ctx), "/k", "v"); err != nil {
		t.Fatal(err)
	}
	stop()

	// The runtime directory is another one with every instance.
	if err := os.Rename(filepath.Join(directory, "run"), filepath.Join(directory, "old")); err != nil {
		t.Fatal(err)
	}
	for _, again := range []bool{false, true} {
		plan := storetest.Plan
		plan.New = again
		s, stop := storetest.Open(t, directory, plan)
		if s.MemberID() != member {
			t.Errorf("New = %v: member %s, want %s", again, s.MemberID(), member)
		}
		answer, err := s.Client().Get(store.Root(ctx), "/k")
		if err != nil {
			t.Fatal(err)
		}
		if len(answer.Kvs) != 1 || string(answer.Kvs[0].Value) != "v" {
			t.Errorf("New = %v: %v, want the value that was put before", again, answer.Kvs)
		}
		stop()
	}
}

func TestNobodyButRootWithoutAnIdentity(t *testing.T) {
	s, _ := storetest.Open(t, storetest.Directory(t), storetest.Plan)
	ctx := storetest.Context(t)
	if _, err := s.Client().Get(ctx, "/k"); err == nil {
		t.Error("a call in process without root's context was let through: authorization is off")
	}
	if _, err := s.Client().Get(store.Root(ctx), "/k"); err != nil {
		t.Errorf("root: %v", err)
	}
}

func TestPeerSocketIsPrivate(t *testing.T) {
	directory := storetest.Directory(t)
	storetest.Open(t, directory, storetest.Plan)
	info, err := os.Stat(filepath.Join(directory, "run", "peer"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o700 {
		t.Errorf("the directory of the peers' socket has mode %o, want 700", info.Mode().Perm())
	}
	if socket, err := os.Stat(filepath.Join(directory, "run", "peer", "raft.sock")); err != nil || socket.Mode().Type() != os.ModeSocket {
		t.Errorf("no socket for peers: %v, %v", socket, err)
	}
}

func TestUnstoppedStaysLocked(t *testing.T) {
	t.Parallel() // it takes as long as a member is waited for
	config := storetest.Config(t, storetest.Directory(t))
	s, err := store.Open(storetest.Context(t), config, storetest.Plan)
	if err != nil {
		t.Fatal(err)
	}
	release := s.Hold()
	if err, broken := s.Close(), (*store.BrokenError)(nil); !errors.As(err, &broken) {
		t.Errorf("a member that does not stop was closed: %v", err)
	}
	if again, err := store.Open(storetest.Context(t), config, storetest.Plan); err == nil {
		t.Error("its data is used a second time", again.Close())
	}
	release()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestOneProcessAtATime(t *testing.T) {
	directory := storetest.Directory(t)
	storetest.Open(t, directory, storetest.Plan)
	if _, err := store.Open(storetest.Context(t), storetest.Config(t, directory), storetest.Plan); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a second store in one directory: %v, want that another process uses it", err)
	}
}

func TestOpenRefusesWhatDoesNotFit(t *testing.T) {
	const missing, foreign = consensusv1.FormProblemKind_FORM_PROBLEM_KIND_STORE_MISSING, consensusv1.FormProblemKind_FORM_PROBLEM_KIND_STORE_FOREIGN
	complete := storetest.Directory(t)
	_, stop := storetest.Open(t, complete, storetest.Plan)
	stop()
	fresh := func(*testing.T) string { return storetest.Directory(t) }
	copied := func(change func(t *testing.T, data string)) func(*testing.T) string {
		return func(t *testing.T) string {
			directory := storetest.Directory(t)
			if err := os.CopyFS(filepath.Join(directory, "data"), os.DirFS(filepath.Join(complete, "data"))); err != nil {
				t.Fatal(err)
			}
			change(t, filepath.Join(directory, "data"))
			return directory
		}
	}
	unchanged := copied(func(*testing.T, string) {})
	existing := func(plan store.Plan) store.Plan { plan.New = false; return plan }
	other := storetest.Plan
	other.ClusterID = "cluster-b"
	moved := storetest.Plan
	moved.NodeID = "reeve-2"
	remove := func(elements ...string) func(*testing.T, string) {
		return func(t *testing.T, data string) {
			if err := os.RemoveAll(filepath.Join(append([]string{data}, elements...)...)); err != nil {
				t.Fatal(err)
			}
		}
	}
	overwrite := func(content string) func(*testing.T, string) {
		return func(t *testing.T, data string) {
			if err := os.WriteFile(filepath.Join(data, "store.json"), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	unfinished := overwrite(`{"version":1,"clusterId":"cluster-a","nodeId":"reeve-1","phase":"forming"}`)
	for _, c := range []struct {
		name      string
		directory func(*testing.T) string
		plan      store.Plan
		want      consensusv1.FormProblemKind
	}{
		{"existing, nothing there", fresh, existing(storetest.Plan), missing},
		{"existing, all of etcd's files gone", copied(remove("etcd")), existing(storetest.Plan), missing},
		{"new, but complete before and now gone", copied(remove("etcd")), storetest.Plan, missing},
		{"existing, log gone", copied(remove("etcd", "member", "wal")), existing(storetest.Plan), missing},
		{"new, log gone", copied(remove("etcd", "member", "wal")), storetest.Plan, missing},
		{"existing, database gone", copied(remove("etcd", "member", "snap", "db")), existing(storetest.Plan), missing},
		{"existing, never finished", copied(unfinished), existing(storetest.Plan), missing},
		{"existing, other cluster", unchanged, existing(other), foreign},
		{"new, other cluster", unchanged, other, foreign},
		{"existing, other node", unchanged, existing(moved), foreign},
		{"new, other cluster never finished", copied(unfinished), other, foreign},
		{"new, no marker", copied(remove("store.json")), storetest.Plan, foreign},
		{"existing, no marker", copied(remove("store.json")), existing(storetest.Plan), foreign},
		{"new, marker is garbage", copied(overwrite("\x00\x01")), storetest.Plan, foreign},
		{"new, marker of a later version", copied(overwrite(`{"version":2}`)), storetest.Plan, foreign},
		{"existing, another member's files", copied(overwrite(`{"version":1,"clusterId":"cluster-a","nodeId":"reeve-1","phase":"complete","memberId":"1234"}`)), existing(storetest.Plan), foreign},
	} {
		t.Run(c.name, func(t *testing.T) {
			directory := c.directory(t)
			config := storetest.Config(t, directory)
			before := files(t, config.Directory)
			s, err := store.Open(storetest.Context(t), config, c.plan)
			if err == nil {
				s.Close()
			}
			var problem *store.Problem
			if !errors.As(err, &problem) || problem.Kind != c.want {
				t.Fatalf("got %v, want a problem of kind %s", err, c.want)
			}
			if !strings.Contains(problem.Message, config.Directory) {
				t.Errorf("the message does not name the directory: %s", problem.Message)
			}
			if after := files(t, config.Directory); !slices.Equal(after, before) {
				t.Errorf("the refusal changed the directory:\n%v\nbefore:\n%v", after, before)
			}
		})
	}
}

// files lists what a directory holds, but for the lock.
func files(t *testing.T, directory string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(directory, func(path string, _ os.DirEntry, err error) error {
		if filepath.Base(path) != "lock" {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestUnusableFilesAreAnError(t *testing.T) {
	directory := storetest.Directory(t)
	_, stop := storetest.Open(t, directory, storetest.Plan)
	stop()
	logs, err := filepath.Glob(filepath.Join(directory, "data", "etcd", "member", "wal", "*.wal"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("no log: %v, %v", logs, err)
	}
	for _, log := range logs {
		if err := os.WriteFile(log, []byte(strings.Repeat("not a log. ", 4096)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// In a process of its own, since what etcd had opened by then stays open.
	output, err := formCommand(directory).Output()
	if err == nil {
		t.Fatal("a store with a destroyed log was opened")
	}
	if got := string(output); !strings.HasPrefix(got, "broken: ") || !strings.Contains(got, directory) {
		t.Errorf("got %q, want a BrokenError that names the directory", got)
	}
}

func TestUsers(t *testing.T) {
	s, _ := storetest.Open(t, storetest.Directory(t), storetest.Plan)
	ctx := storetest.Context(t)
	users := func() map[string]uint64 {
		status, _ := s.Status().Get()
		return status.Users
	}
	if got := slices.Collect(maps.Keys(users())); !slices.Equal(got, []string{"curator"}) {
		t.Fatalf("after Open the users are %v, want the cluster user only", got)
	}
	for range 2 { // the second finds nothing to do
		if err := s.EnsureUser(ctx, "lighthouse"); err != nil {
			t.Fatal(err)
		}
	}
	first := users()["lighthouse"]
	if first == 0 {
		t.Fatal("the user was made but is not published")
	}

	t.Run("what is not the user's own is taken from it", func(t *testing.T) {
		root := store.Root(ctx)
		if _, err := s.Client().RoleAdd(root, "extra"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Client().UserGrantRole(root, "lighthouse", "extra"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Client().RoleGrantPermission(root, "lighthouse", "/reeve/", "/reeve0", clientv3.PermissionType(clientv3.PermRead)); err != nil {
			t.Fatal(err)
		}
		if err := s.EnsureUser(ctx, "lighthouse"); err != nil {
			t.Fatal(err)
		}
		user, err := s.Client().UserGet(root, "lighthouse")
		if err != nil {
			t.Fatal(err)
		}
		role, err := s.Client().RoleGet(root, "lighthouse")
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(user.Roles, []string{"lighthouse"}) || len(role.Perm) != 1 || string(role.Perm[0].Key) != "/reeve/users/lighthouse/" {
			t.Errorf("roles %v, permissions %v; want its own role and prefix only", user.Roles, role.Perm)
		}
	})
	t.Run("one that is made anew has a new number", func(t *testing.T) {
		for range 2 { // the second finds nothing to do
			if err := s.RemoveUser(ctx, "lighthouse"); err != nil {
				t.Fatal(err)
			}
		}
		if n := users()["lighthouse"]; n != 0 {
			t.Errorf("a removed user is still published, with number %d", n)
		}
		if err := s.EnsureUser(ctx, "lighthouse"); err != nil {
			t.Fatal(err)
		}
		if n := users()["lighthouse"]; n <= first {
			t.Errorf("the user made anew has number %d, want more than %d", n, first)
		}
	})
	t.Run("names that cannot be", func(t *testing.T) {
		for _, name := range []string{"", "root", "A", "a/b", "a b", "../x", strings.Repeat("a", 33)} {
			if err := s.EnsureUser(ctx, name); err == nil {
				t.Errorf("EnsureUser(%q) succeeded", name)
			}
			if err := s.RemoveUser(ctx, name); err == nil {
				t.Errorf("RemoveUser(%q) succeeded", name)
			}
		}
		if err := s.RemoveUser(ctx, "curator"); err == nil {
			t.Error("the cluster user was removed")
		}
	})
}

func TestStatus(t *testing.T) {
	s, _ := storetest.Open(t, storetest.Directory(t), storetest.Plan)
	ctx, cancel := context.WithTimeout(storetest.Context(t), storetest.Bound)
	defer cancel()
	status, err := s.Status().Wait(ctx, func(status store.Status) bool { return status.Leading() && status.Quorum() })
	if err != nil {
		t.Fatalf("never leading with a quorum: %v", err)
	}
	if status.ClusterID != "cluster-a" || status.MemberID != s.MemberID() || !status.Voter || status.DatabaseSize == 0 {
		t.Errorf("%+v", status)
	}
	if len(status.Members) != 1 || status.Members[0] != (store.Member{ID: s.MemberID(), Name: "reeve-1"}) {
		t.Errorf("members %v", status.Members)
	}
	before := status.DatabaseSize
	value := strings.Repeat("x", 1<<20)
	for n := range 8 {
		if _, err := s.Client().Put(store.Root(ctx), "/k"+string(rune('a'+n)), value); err != nil {
			t.Fatal(err)
		}
	}
	started := time.Now()
	if _, err := s.Status().Wait(ctx, func(status store.Status) bool { return status.DatabaseSize > before }); err != nil {
		t.Fatalf("the size never grew: %v", err)
	}
	t.Logf("the new size was published after %s", time.Since(started))
}
