package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
)

// formHelper, in the environment, names the directory in which the test binary makes a store and waits to be killed.
const formHelper = "REEVE_TEST_FORM"

func runFormHelper() {
	directory := os.Getenv(formHelper)
	s, err := store.Open(context.Background(), store.Config{
		Log:              hclog.NewNullLogger(),
		Directory:        filepath.Join(directory, "data"),
		RuntimeDirectory: filepath.Join(directory, "run"),
		Heartbeat:        storetest.Heartbeat,
		Election:         storetest.Election,
	}, storetest.Plan)
	if broken := (*store.BrokenError)(nil); errors.As(err, &broken) {
		fmt.Println("broken:", err)
		os.Exit(1)
	}
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	fmt.Println("member", s.MemberID())
	select {} // until it is killed
}

func formCommand(directory string) *exec.Cmd {
	command := exec.Command(os.Args[0])
	command.Env = []string{formHelper + "=" + directory}
	return command
}

// TestKilledAnywhere kills the process that makes a store as soon as a certain trace of it is on disk, several times at some, and expects the next
// one to finish the store, with one cluster and one member.
func TestKilledAnywhere(t *testing.T) {
	exists := func(elements ...string) func(string) bool {
		return func(directory string) bool {
			_, err := os.Lstat(filepath.Join(append([]string{directory, "data"}, elements...)...))
			return err == nil
		}
	}
	temporary, log := exists("etcd", "member", "wal.tmp"), exists("etcd", "member", "wal")
	for _, c := range []struct {
		name    string
		reached func(directory string) bool
		after   time.Duration // let it run on for that long
	}{
		{"lock", exists("lock"), 0},
		{"marker", exists("store.json"), 0},
		{"etcd's directory", exists("etcd"), 0},
		{"database", exists("etcd", "member", "snap", "db"), 0},
		// It is there for a moment only: who looks too late finds what it became.
		{"temporary log", func(directory string) bool { return temporary(directory) || log(directory) }, 0},
		{"log", log, 0},
		{"log and 20 ms", log, 20 * time.Millisecond},
		{"log and 60 ms", log, 60 * time.Millisecond},
		{"log and 100 ms", log, 100 * time.Millisecond},
		{"log and 140 ms", log, 140 * time.Millisecond},
		{"complete", func(directory string) bool {
			content, _ := os.ReadFile(filepath.Join(directory, "data", "store.json"))
			return strings.Contains(string(content), `"complete"`)
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			directory := storetest.Directory(t)
			storetest.Mkdir(t, directory, "data")
			storetest.Mkdir(t, directory, "run")
			for range 2 {
				killWhen(t, directory, c.reached, c.after)
			}
			var completed string
			content, _ := os.ReadFile(filepath.Join(directory, "data", "store.json"))
			if _, rest, found := strings.Cut(string(content), `"memberId":"`); found {
				completed, _, _ = strings.Cut(rest, `"`)
			}
			s, _ := storetest.Open(t, directory, storetest.Plan)
			if completed != "" && s.MemberID() != completed {
				t.Errorf("a complete store of member %s became one of member %s", completed, s.MemberID())
			}
			ctx := storetest.Context(t)
			if _, err := s.Client().Put(store.Root(ctx), "/k", "v"); err != nil {
				t.Errorf("the finished store does not take a write: %v", err)
			}
			if _, err := s.Client().Get(ctx, "/k"); err == nil {
				t.Error("authorization of the finished store is off")
			}
			if status, _ := s.Status().Get(); status.Users["curator"] == 0 {
				t.Error("the finished store has no cluster user")
			}
		})
	}
}

// killWhen starts a process that makes a store and kills it once it has reached a point.
func killWhen(t *testing.T, directory string, reached func(string) bool, after time.Duration) {
	t.Helper()
	helper := formCommand(directory)
	var output strings.Builder
	helper.Stdout, helper.Stderr = &output, &output
	if err := helper.Start(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(storetest.Bound)
	for !reached(directory) { // as fast as it goes: the points are fractions of a millisecond apart
		if time.Now().After(deadline) {
			_ = helper.Process.Kill()
			_ = helper.Wait()
			t.Fatalf("the point was never reached; output: %s", output.String())
		}
	}
	timer := time.NewTimer(after)
	<-timer.C
	if err := helper.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := helper.Wait(); err == nil || helper.ProcessState.ExitCode() != -1 {
		t.Fatalf("the process was not killed but ended by itself: %v, output: %s", err, output.String())
	}
}
