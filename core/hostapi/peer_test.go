package hostapi_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/reeveproject/reeve/core/membership"
	"github.com/reeveproject/reeve/core/plugin"
)

// peerVariable makes the test's executable a role that does what it is told on its standard input, line by line, and says what came of it.
const peerVariable = "HOSTAPI_TEST_PEER"

func peer() {
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		what, path, _ := strings.Cut(lines.Text(), " ")
		switch what {
		case "dial":
			fmt.Println(dial(path))
		case "exec":
			err := syscall.Exec("/proc/self/exe", os.Args, os.Environ())
			fmt.Println("exec:", err)
		case "child", "stranger":
			child := exec.Command("/proc/self/exe")
			child.Env = []string{dialVariable + "=" + path}
			child.SysProcAttr = &syscall.SysProcAttr{Setpgid: what == "stranger"}
			output, err := child.Output()
			if err != nil {
				output = fmt.Append(nil, err)
			}
			fmt.Println(string(output))
		}
	}
}

// roleProcess is a process of its own group, as a launcher starts them.
type roleProcess struct {
	t       *testing.T
	process plugin.Process
	tell    func(line string) error
	answers *bufio.Scanner
}

func startRole(t *testing.T) *roleProcess {
	t.Helper()
	command := exec.CommandContext(t.Context(), "/proc/self/exe")
	command.Env = []string{peerVariable + "=1"}
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	input, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = input.Close() // it ends then
		if err := command.Wait(); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	r := &roleProcess{t: t, process: processOf(command.Process.Pid), answers: bufio.NewScanner(output), tell: func(line string) error {
		_, err := fmt.Fprintln(input, line)
		return err
	}}
	r.answers.Scan()
	if r.answers.Text() != "ready" {
		t.Fatalf("the role says %q: %v", r.answers.Text(), r.answers.Err())
	}
	return r
}

// must has the role do something, of which this must come.
func (r *roleProcess) must(want, line string) {
	r.t.Helper()
	if err := r.tell(line); err != nil {
		r.t.Fatal(err)
	}
	r.answers.Scan()
	if got := r.answers.Text(); got != want {
		r.t.Errorf("%s: %q, and should be %q (%v)", line, got, want, r.answers.Err())
	}
}

// processOf is a process with the time of its start.
func processOf(pid int) plugin.Process {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	process := plugin.Process{PID: pid}
	if fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]); len(fields) > 19 {
		process.Start, _ = strconv.ParseUint(string(fields[19]), 10, 64)
	}
	return process
}

// TestSharedUser: where instances have one user, the host socket is for the process group of its instance.
func TestSharedUser(t *testing.T) {
	const in, out = "call: OK", "call: Unavailable"
	n := newNode(t, nil)
	n.membership.Set(membership.Status{State: membership.Home})
	var sockets []string
	var remits []*plugin.Remit
	for _, name := range []string{"one.1", "two.1"} {
		from := remitOf(name)
		remit := &plugin.Remit{
			InstanceID: from.InstanceID, Name: name, Role: from.Role, UID: from.UID, GID: from.GID, SharedUID: true, Manifest: from.Manifest, Grants: from.Grants,
		}
		remits, sockets = append(remits, remit), append(sockets, n.open(remit))
	}
	one, two := startRole(t), startRole(t)
	one.must(out, "dial "+sockets[0]) // whose process is not known yet
	remits[0].SetProcess(one.process)
	remits[1].SetProcess(two.process)
	for range 2 {
		for _, what := range []string{"dial ", "child "} {
			one.must(in, what+sockets[0])
			one.must(out, what+sockets[1])
			two.must(in, what+sockets[1])
			two.must(out, what+sockets[0])
		}
		one.must(out, "stranger "+sockets[0])
		one.must("ready", "exec")
		two.must("ready", "exec")
	}
	// The number of a group that another had before.
	former := one.process
	former.Start--
	remits[0].SetProcess(former)
	one.must(out, "dial "+sockets[0])
}
