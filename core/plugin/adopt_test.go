package plugin_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/plugin/plugintest"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// next is the core after one that was killed.
func (n *testNode) next(t *testing.T) *testNode {
	t.Helper()
	next, err := openNode(n.dir)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// adopt has a core adopt what is there, and ends that when the test ends.
func (n *testNode) adopt(t *testing.T) map[string]*plugin.Instance {
	t.Helper()
	ctx, cancel := timeout(t)
	defer cancel()
	instances, err := n.launcher.Adopt(ctx)
	if err != nil {
		t.Fatal(err)
	}
	adopted := make(map[string]*plugin.Instance)
	for _, instance := range instances {
		adopted[instance.Remit().Role] = instance
		t.Cleanup(func() {
			if err := instance.Stop(context(), time.Second); err != nil {
				t.Error(err)
			}
		})
	}
	return adopted
}

// recorded is what the tests look at in a record.
type recorded struct {
	PID    int    `json:"pid"`
	Start  uint64 `json:"start"`
	Socket string `json:"socket"`
}

func (n *testNode) record(t *testing.T, name string) (path string, r recorded) {
	t.Helper()
	path = filepath.Join(n.dir, "run", "instances", name+".json")
	content, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(content, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path, r
}

// spoil changes a record.
func spoil(t *testing.T, path string, change func(map[string]any)) {
	t.Helper()
	content, err := os.ReadFile(path)
	var fields map[string]any
	if err == nil {
		decoder := json.NewDecoder(strings.NewReader(string(content)))
		decoder.UseNumber()
		err = decoder.Decode(&fields)
	}
	if err == nil {
		change(fields)
		content, err = json.Marshal(fields)
	}
	if err == nil {
		err = os.WriteFile(path, content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func alive(pid int) bool {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(content), ") Z ")
}

func TestAdopted(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	children := childrenThatAreFound()
	if node.users.Shared() {
		// When the first process of a group is gone, which happens as soon as the machine's first process reaps it, only the mark tells whose the group was: the user is
		// also others', and the number may be another group's by then.
		children = slices.DeleteFunc(children, func(child string) bool { return child == "nameless" })
	}
	kill, wait := node.startCoreWith(t, coreWork{Variant: everything, Configuration: plugintest.Configuration{Do: "ready", Children: children}})
	wait("ready")
	kill()
	before := node.processes(t)
	next := node.next(t)
	adopted := next.adopt(t)
	if len(adopted) != 2 {
		t.Fatalf("adopted %v", adopted)
	}
	if after := node.processes(t); !slices.Equal(before, after) {
		t.Errorf("the processes were %v and are %v", before, after)
	}
	one := adopted["one"]
	status, _ := one.Status().Get()
	if next.log.has(func(l logged) bool {
		return l.fields["role"] == "one" && l.message == "an instance is adopted that does not state its status yet"
	}) {
		status = waitState(t, one, rolev1.RoleState_ROLE_STATE_READY) // it was too busy to be in time
	}
	if status.GetState() != rolev1.RoleState_ROLE_STATE_READY || len(status.GetEndpoints()) != 1 {
		t.Errorf("its status is %v as soon as it is adopted", status)
	}
	if s := one.Spec(); s.Generation != 7 || s.Restarts != 3 || s.Plugin.GetName() != everything.Name || s.Configuration == "" {
		t.Errorf("it was launched for %+v", s)
	}
	if r := one.Remit(); r.Name != "one.1" || r.Manifest.GetConsensusUser() != "one" || r.Grants.GetConsensusUser() != "one" {
		t.Errorf("its remit is %+v", r)
	}
	if process, known := one.Remit().Process(); !known || process != one.Process() || process.CheckMember(process.PID) != nil {
		t.Errorf("its remit's process is %v (%v), and it is %v", process, known, one.Process())
	}
	if err := one.CheckHealth(t.Context()); err != nil {
		t.Error(err)
	}
	// The end of a process that is nobody's child here is seen, and it is cleaned up after.
	if err := syscall.Kill(one.Process().PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if exit := one.Exit(); !exit.Unknown || exit.Code != -1 || exit.Requested {
		t.Errorf("exit %+v", exit)
	}
	if left := node.entries(t, "run", "plugin"); !slices.Equal(left, []string{"two.1"}) {
		t.Errorf("run/plugin holds %v", left)
	}
	// One that is adopted stops like any other.
	if err := adopted["two"].Stop(t.Context(), 0); err != nil {
		t.Error(err)
	}
	if exit := adopted["two"].Exit(); !exit.Requested {
		t.Errorf("exit %+v", exit)
	}
	node.nothingLeft(t)
	if instance := next.launch(t, plugintest.Configuration{Do: "ready"}); instance.Remit().Name != "one.2" {
		t.Errorf("the next instance is %s", instance.Remit().Name)
	}
}

func TestAdoptedAgainAndAgain(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	kill, wait := node.startCoreWith(t, coreWork{Variant: everything, Configuration: plugintest.Configuration{Do: "ready", LogAlways: 1}})
	wait("ready")
	kill()
	_, before := node.record(t, "one.1")
	next := node.next(t)
	for range 5 {
		ctx, cancel := timeout(t)
		instances, err := next.launcher.Adopt(ctx)
		cancel()
		if err != nil || len(instances) != 2 {
			t.Fatal(instances, err)
		}
		// No line is lost, and none comes twice, whoever reads.
		next.consecutive(t, "one", 20+next.consecutive(t, "one", 0, 1), 1)
		for _, instance := range instances {
			instance.Leave()
			instance.Leave() // another time there is nothing to do
			if !alive(instance.Process().PID) {
				t.Error("an instance that was left has ended")
			}
		}
		next = node.next(t)
	}
	if one := next.adopt(t)["one"]; one == nil || one.Process().PID != before.PID {
		t.Errorf("%v after process %d", one, before.PID)
	}
}

// consecutive waits until the log of a role has a line, and returns which one is the last. It fails the test unless there are all from the first to that, each once. A core
// that was killed may have copied lines without having persisted that it did: the core after it copies them again, once for each of the kills.
func (n *testNode) consecutive(t *testing.T, role string, wanted, kills int) (last int) {
	t.Helper()
	next := 0
	text := n.roleLog(t, role, fmt.Sprintf("line %d\n", wanted))
	for line := range strings.Lines(text) {
		number, ok := strings.CutPrefix(line, "line ")
		if !ok || !strings.HasSuffix(line, "\n") {
			continue
		}
		if number != fmt.Sprintln(next) {
			again, err := strconv.Atoi(strings.TrimSpace(number))
			if err != nil || again > next || kills == 0 {
				t.Fatalf("line %q, want line %d", line, next)
			}
			kills--
			next = again
		}
		next++
	}
	return next - 1
}

// roleLog waits until the log of a role has a text, and returns all of it.
func (n *testNode) roleLog(t *testing.T, role, wanted string) (text string) {
	t.Helper()
	until(t, fmt.Sprintf("%q in the log of role %s", wanted, role), func() bool {
		content, err := os.ReadFile(filepath.Join(n.dir, "data", "logs", role+".log"))
		text = string(content)
		return err == nil && strings.Contains(text, wanted)
	})
	return text
}

func TestLogOfTheTimeWithoutCore(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	kill, wait := node.startCoreWith(t, coreWork{Variant: everything, Configuration: plugintest.Configuration{Do: "ready", LogAlways: 5}})
	wait("ready")
	kill()
	lines := func() int { return node.written(t, "one.1") }
	before := lines()
	until(t, "lines while no core runs", func() bool { return lines() >= before+20 })
	next := node.next(t)
	next.adopt(t)
	next.consecutive(t, "one", before+10, 1)
}

// written counts the lines "line …" that an instance has written, whether a core has read them or not.
func (n *testNode) written(t *testing.T, name string) int {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(n.dir, "run", "instances", name+".err", "err"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(content), "\nline ")
}

// The last words of an instance that ended while no core ran come into its log.
func TestEndsWithoutCore(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	kill, wait := node.startCoreWith(t, coreWork{Variant: everything, Configuration: plugintest.Configuration{Do: "ready", LogAlways: 5}})
	wait("ready")
	kill()
	before := node.written(t, "one.1")
	until(t, "lines while no core runs", func() bool { return node.written(t, "one.1") >= before+20 })
	_, r := node.record(t, "one.1")
	if err := syscall.Kill(r.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	next := node.next(t)
	next.adopt(t)
	// The core's own log has the last of them.
	last := fmt.Sprintf("line %d", next.consecutive(t, "one", before+10, 1))
	next.log.wait(t, func(l logged) bool { return l.fields["role"] == "one" && l.message == last })
	if left := node.entries(t, "run", "instances"); slices.Contains(left, "one.1.err") {
		t.Errorf("left: %v", left)
	}
}

func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !so(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited for %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// A role that prints, without the SDK, neither ends nor stands still while no core runs.
func TestPrintsWithoutCore(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	chatter := plugintest.Variant{Name: "chatter", Before: "raw", Chatter: true, Roles: []plugintest.Role{{Name: "one"}}}
	kill, wait := node.startCoreWith(t, coreWork{Variant: chatter})
	wait("ready")
	kill()
	_, r := node.record(t, "one.1")
	output := filepath.Join(node.dir, "run", "instances", "one.1.out")
	size := func() int64 {
		info, err := os.Stat(output)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	// More than any pipe takes.
	until(t, "2 MiB on its standard output", func() bool { return size() > 2<<20 })
	one := node.next(t).adopt(t)["one"]
	if one == nil || one.Process().PID != r.PID {
		t.Fatalf("%v after process %d", one, r.PID)
	}
	// It goes on to print, and the core to give the room of that back.
	before, emptied := size(), 0
	until(t, "room on its standard output, again and again", func() bool {
		now := size()
		if now < before && now < 256<<10 {
			emptied++
		}
		before = now
		return emptied == 5
	})
	// Of what it has printed little is kept once it prints no more, however late the core comes to that.
	if err := syscall.Kill(r.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(r.PID, syscall.SIGCONT) })
	until(t, "at most 64 KiB of its standard output", func() bool { return size() <= 64<<10 })
}

func TestDiedWithoutCore(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	kill, wait := node.startCore(t)
	wait("ready")
	kill()
	_, one := node.record(t, "one.1")
	if err := syscall.Kill(one.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "the end of its process", func() bool { return !alive(one.PID) })
	next := node.next(t)
	adopted := next.adopt(t)
	if adopted["one"] != nil || adopted["two"] == nil {
		t.Errorf("adopted %v", adopted)
	}
	next.log.wait(t, func(l logged) bool { return l.message == "a role ended while no core ran" && l.fields["role"] == "one" })
	// What it left running is gone with it, and what the other one has is not.
	if left := len(node.processes(t)); left != 4 && !next.users.Shared() || left < 3 {
		t.Errorf("%d processes: %v", left, node.processes(t))
	}
	if left := node.entries(t, "run", "plugin"); !slices.Equal(left, []string{"two.1"}) {
		t.Errorf("run/plugin holds %v", left)
	}
}

func TestEndsWithCore(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	tied := plugintest.Variant{Name: "tied", Roles: []plugintest.Role{{Name: "one", EndsWithCore: true}, {Name: "two"}}}
	kill, wait := node.startCoreWith(t, coreWork{Variant: tied, Configuration: plugintest.Configuration{Do: "ready"}})
	wait("ready")
	kill()
	if adopted := node.next(t).adopt(t); adopted["one"] != nil || adopted["two"] == nil {
		t.Errorf("adopted %v", adopted)
	}
	if left := node.processes(t); len(left) != 1 {
		t.Errorf("processes %v", left)
	}
}

// A core may be killed at any moment of a launch: what is adopted then runs, and everything else is gone.
func TestAdoptAfterEveryMoment(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	for moment := 0; moment < 10; moment += momentsApart {
		kill, wait := node.startCoreWith(t, coreWork{Variant: everything, Configuration: plugintest.Configuration{Do: "ready"}})
		wait("begins")
		timer := time.NewTimer(time.Duration(moment*moment) * 2 * time.Millisecond)
		<-timer.C
		kill()
		next := node.next(t)
		ctx, cancel := timeout(t)
		instances, err := next.launcher.Adopt(ctx)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if left := node.processes(t); len(left) != len(instances) {
			t.Errorf("killed at moment %d: %d instances, processes %v", moment, len(instances), left)
		}
		for _, instance := range instances {
			waitState(t, instance, rolev1.RoleState_ROLE_STATE_READY)
			if err := instance.Stop(t.Context(), 0); err != nil {
				t.Error(err)
			}
		}
		node.nothingLeft(t)
	}
}

// To adopt and to leave costs nothing that stays. It runs alone.
func TestAdoptionsLeakNothing(t *testing.T) {
	node := newNode(t)
	kill, wait := node.startCoreWith(t, coreWork{Variant: everything, Configuration: plugintest.Configuration{Do: "ready"}})
	wait("ready")
	kill()
	next := node.next(t)
	turn := func() {
		instances, err := next.launcher.Adopt(t.Context())
		if err != nil || len(instances) != 2 {
			t.Fatal(instances, err)
		}
		for _, instance := range instances {
			instance.Leave()
		}
	}
	turn()
	before := entriesOf(t, "/proc/self/fd")
	for range 10 {
		turn()
	}
	until(t, fmt.Sprintf("%d file descriptors", before), func() bool { return entriesOf(t, "/proc/self/fd") <= before })
	next.adopt(t)
}

// BenchmarkAdopt adopts 20 instances: at most 150 ms.
func BenchmarkAdopt(b *testing.B) {
	node := newNode(b)
	many := plugintest.Variant{Name: "many"}
	for n := range 20 {
		many.Roles = append(many.Roles, plugintest.Role{Name: fmt.Sprint("role", n)})
	}
	record := plugintest.Record(node.add(b, many), many)
	for _, role := range many.Roles {
		s := plugin.Spec{Role: role.Name, Plugin: record, Configuration: plugintest.Configuration{Do: "ready"}.String()}
		remit, err := node.launcher.Prepare(b.Context(), s)
		if err != nil {
			b.Fatal(err)
		}
		instance, err := node.launcher.Launch(b.Context(), remit, s, "/nowhere")
		if err != nil {
			b.Fatal(err)
		}
		instance.Leave()
	}
	var instances []*plugin.Instance
	for b.Loop() {
		var err error
		if instances, err = node.launcher.Adopt(b.Context()); err != nil || len(instances) != 20 {
			b.Fatal(len(instances), err)
		}
		b.StopTimer()
		for _, instance := range instances {
			instance.Leave()
		}
		b.StartTimer()
	}
	if err := node.launcher.StopRecorded(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// The next core is told in which state an instance was shown and since when, and nothing of that stays when the instance ends.
func TestStateIsKeptForTheNextCore(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	kill, wait := node.startCoreWith(t, coreWork{Variant: everything, Configuration: plugintest.Configuration{Do: "ready"}})
	wait("ready")
	kill()
	ctx, cancel := timeout(t)
	defer cancel()
	instances, err := node.next(t).launcher.Adopt(ctx)
	if err != nil || len(instances) != 2 {
		t.Fatal(instances, err)
	}
	want := time.Unix(1_700_000_000, 123)
	for _, instance := range instances {
		if state, since := instance.KeptState(); state != 0 || !since.IsZero() {
			t.Errorf("before anything is kept: %s since %s", state, since)
		}
		instance.KeepState(hostv1.InstanceState_INSTANCE_STATE_DEGRADED, time.Unix(1, 0))
		instance.KeepState(hostv1.InstanceState_INSTANCE_STATE_READY, want)
		instance.Leave()
	}
	for _, instance := range node.next(t).adopt(t) {
		if state, since := instance.KeptState(); state != hostv1.InstanceState_INSTANCE_STATE_READY || !since.Equal(want) {
			t.Errorf("%s since %s is kept, want %s", state, since, want)
		}
		if err := instance.Stop(t.Context(), time.Second); err != nil {
			t.Error(err)
		}
	}
	if left := node.entries(t, "run", "instances"); len(left) > 0 {
		t.Errorf("run/instances holds %v", left)
	}
}
