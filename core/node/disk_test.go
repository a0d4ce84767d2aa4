package node

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/reeveproject/reeve/core/plugin/plugintest"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// image is an ext4 in a file, mounted at a directory. Nothing of the test's own is on it.
type image struct {
	t        *testing.T
	file, at string
}

func newImage(t *testing.T) *image {
	t.Helper()
	for _, program := range []string{"mkfs.ext4", "e2fsck", "fsfreeze"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("cannot run: %v (apt-get install e2fsprogs util-linux)", err)
		}
	}
	dir, err := os.MkdirTemp("/tmp", "reeve-image-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	i := &image{t: t, file: filepath.Join(dir, "ext4"), at: filepath.Join(dir, "data")}
	if err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(i.at, 0o755), os.WriteFile(i.file, nil, 0o600), os.Truncate(i.file, 256<<20)); err != nil {
		t.Fatal(err)
	}
	i.run("mkfs.ext4", "-q", i.file)
	if output, err := exec.Command("mount", "-o", "loop", i.file, i.at).CombinedOutput(); err != nil {
		t.Skipf("cannot run: this root cannot mount an image: %v: %s", err, output)
	}
	t.Cleanup(func() { _ = exec.Command("umount", "-l", i.at).Run() })
	return i
}

func (i *image) run(command ...string) {
	i.t.Helper()
	if output, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
		i.t.Fatalf("%v: %v: %s", command, err, output)
	}
}

// repair unmounts the file system, repairs it and mounts it again: the kernel lets nobody write to what has met an error before that. It repairs a copy, since a mount namespace elsewhere on
// this machine may still have what was unmounted.
func (i *image) repair() {
	i.t.Helper()
	former := i.file
	i.file += "-repaired"
	i.run("umount", "-l", i.at)
	i.run("cp", "--sparse=always", former, i.file)
	// 1: it has repaired something.
	var repaired *exec.ExitError
	if output, err := exec.Command("e2fsck", "-fy", i.file).CombinedOutput(); err != nil && (!errors.As(err, &repaired) || repaired.ExitCode() > 1) {
		i.t.Fatalf("%v: %s", err, output)
	}
	i.run("mount", "-o", "loop", i.file, i.at)
}

// freeze freezes the file system until thaw is called. A process of its own thaws it, at the latest after a minute more than the test means to wait: whoever waits for a frozen file system cannot be ended.
func (i *image) freeze(atMost string) (thaw func()) {
	i.t.Helper()
	helper := exec.Command("sh", "-c", `trap '' HUP INT TERM; fsfreeze --freeze "$1" || exit 1; echo frozen; timeout -s KILL "$2" cat || early=1; fsfreeze --unfreeze "$1" && test -z "$early"`, "freeze", i.at, atMost)
	stdin, err := helper.StdinPipe()
	if err != nil {
		i.t.Fatal(err)
	}
	stdout, err := helper.StdoutPipe()
	if err != nil {
		i.t.Fatal(err)
	}
	if err := helper.Start(); err != nil {
		i.t.Fatal(err)
	}
	over := false
	thaw = func() {
		if !over {
			over = true
			_ = stdin.Close()
			if err := helper.Wait(); err != nil {
				i.t.Errorf("the file system was thawed before its time, or not at all: %v", err)
			}
		}
	}
	i.t.Cleanup(thaw)
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "frozen\n" {
		over = true
		_ = helper.Wait()
		i.t.Skipf("cannot run: the file system cannot be frozen: %v", err)
	}
	return thaw
}

// troubled says that the node's only problem is the one of its volume, and that no role has failed.
func (a *alive) troubled(what string) func(*nodev1.Status) bool {
	return func(s *nodev1.Status) bool {
		a.unharmed(s)
		return strings.Count(s.GetNode().GetProblem(), what) == 1 && strings.HasPrefix(s.GetNode().GetProblem(), "the ")
	}
}

// unharmed fails the test if something counts as a failure of a role.
func (a *alive) unharmed(s *nodev1.Status) {
	a.t.Helper()
	for _, instance := range s.GetNode().GetInstances() {
		if instance.GetLastFailure().GetFailures() > 0 || instance.GetRestarts() > 0 {
			a.t.Errorf("it counts as a failure of a role: %v", instance)
		}
	}
}

// measured waits until reeve_node_problem is a value.
func (a *alive) measured(want string) {
	a.t.Helper()
	for ctx := a.context(); ; {
		answer, err := a.client().GetMetrics(ctx, &nodev1.GetMetricsRequest{})
		if err != nil {
			a.t.Fatalf("waiting for reeve_node_problem to be %s: %v", want, err)
		}
		if strings.Contains(string(answer.GetText()), "\nreeve_node_problem "+want+"\n") {
			return
		}
	}
}

// followed waits until events of these types are in the journal, in this order, among others.
func (a *alive) followed(types ...string) {
	a.t.Helper()
	ctx, cancel := context.WithCancel(a.context())
	defer cancel()
	stream, err := a.client().WatchEvents(ctx, &nodev1.WatchEventsRequest{Follow: true})
	for err == nil && len(types) > 0 {
		var answer *nodev1.WatchEventsResponse
		answer, err = stream.Recv()
		for _, event := range answer.GetEvents() {
			if len(types) > 0 && event.GetType() == types[0] {
				types = types[1:]
			}
		}
	}
	if err != nil {
		a.t.Fatalf("waiting for the events %v: %v", types, err)
	}
}

// startOn starts the node with its volume on the file system. Its role "api" writes there whenever it is asked whether it is well, and is asked often. It returns the process of that role.
func (a *alive) startOn(i *image) {
	a.t.Helper()
	a.parameters.Directories.Data = i.at
	busy := plugintest.Configuration{Do: "ready", Write: "hello", HealthWrites: true}
	a.parameters.GetBootstrap().Roles[1].Configuration = busy.String()
	a.wrap = func(room storageRoom) storageRoom { return room }
	a.start()
	a.until("the role", ready)
}

// instance is the instance of the role "api".
func instance(s *nodev1.Status) string {
	for _, instance := range s.GetNode().GetInstances() {
		if instance.GetRole() == "api" {
			return instance.GetInstanceId()
		}
	}
	return ""
}

// TestADiskThatFails has a node on a file system that is frozen, and then meets an error. The node says so, in one place, no role is to blame, and all goes on as soon as it can be written.
func TestADiskThatFails(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("cannot run: only root can mount")
	}
	i, a := newImage(t), newAlive(t, plain())
	a.probeEvery = 300 * time.Millisecond
	a.parameters.Supervision = &nodev1.Supervision{Liveness: &nodev1.Liveness{Interval: durationpb.New(100 * time.Millisecond), Timeout: durationpb.New(15 * time.Second)}}
	a.startOn(i)
	a.frozen(i, "120", func() {
		// Longer than a role may be silent.
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		stream, err := a.client().WatchStatus(ctx, &nodev1.WatchStatusRequest{})
		for err == nil {
			var answer *nodev1.WatchStatusResponse
			answer, err = stream.Recv()
			a.unharmed(answer.GetStatus())
		}
		if status.Code(err) != codes.DeadlineExceeded {
			t.Fatal(err)
		}
	})
	_ = exec.Command("mount", "-o", "remount,abort", i.at).Run() // which some kernels do and refuse: what it comes to is seen next
	a.until("a file system that takes no writes", a.troubled("takes no writes"))
	a.measured("1")
	a.followed("VolumeTakesNoWrites", "VolumeTakesWrites", "VolumeTakesNoWrites")
	if err := a.end(); err != nil {
		t.Errorf("it ends with %v", err)
	}
	if err := a.refused(); !strings.Contains(err.Error(), "unmount the file system, repair it (fsck)") || !strings.Contains(err.Error(), i.at) {
		t.Errorf("on a file system that has met an error it starts with: %v", err)
	}
	i.repair()
	a.start()
	a.unharmed(a.until("the role", ready))
	a.measured("0")
	if err := a.end(); err != nil {
		t.Error(err)
	}
}

// frozen freezes the file system of a node while something is done, at most for so many seconds. It checks what holds then, and after the thaw.
func (a *alive) frozen(i *image, atMost string, while func()) {
	a.t.Helper()
	before := instance(a.until("the role", ready))
	thaw := i.freeze(atMost)
	a.until("a disk that does not answer", a.troubled("the disk does not answer"))
	a.measured("1")
	while()
	answer, err := a.client().GetStatus(a.context(), &nodev1.GetStatusRequest{})
	if err != nil || !a.troubled("the disk does not answer")(answer.GetStatus()) {
		a.t.Errorf("the status is %v, %v", answer, err)
	}
	thaw()
	after := a.until("all well", func(s *nodev1.Status) bool { return ready(s) && s.GetNode().GetProblem() == "" })
	a.unharmed(after)
	if is := instance(after); is != before {
		a.t.Errorf("the instance %s is %s now", before, is)
	}
	a.measured("0")
	a.followed("VolumeTakesNoWrites", "VolumeTakesWrites")
}
