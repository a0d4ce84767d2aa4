package confine_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/confine"
	protocol "github.com/reeveproject/reeve/proto/confine"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

const (
	// confineVariable makes the test program a `reeved confine`, whose ranges of users are in the file that it names.
	confineVariable = "REEVE_TEST_CONFINE"
	// long is within what everything here has to happen, and far above what it takes.
	long = time.Minute
)

// executable is the program that is to be confined.
var executable string

func TestMain(m *testing.M) {
	if ranges := os.Getenv(confineVariable); ranges != "" {
		err := confine.Run(context.Background(), confine.Config{
			Log: hclog.NewNullLogger(), Requests: os.Stdin, Answers: os.NewFile(protocol.AnswersFD, "answers"), Stdout: os.Stdout, Stderr: os.Stderr, Ranges: ranges,
		})
		if err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	directory, err := os.MkdirTemp("", "confine")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(directory) }()
	executable = filepath.Join(directory, "role")
	build := exec.Command("go", "build", "-o", executable, "./testdata/role")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the role: %v\n%s", err, output)
		return 1
	}
	return m.Run()
}

// confined is a `reeved confine` that was asked to run the role.
type confined struct {
	t       *testing.T
	command *exec.Cmd
	input   io.WriteCloser
	output  *bufio.Reader
	answers *json.Decoder
	private string
}

// run asks for the role to be run. It may be confined by this kernel, or the test has no object.
func run(t *testing.T, what string, change func(*protocol.Request)) *confined {
	t.Helper()
	own, err := os.MkdirTemp("/var/tmp", "confine")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(own) })
	if err := os.Chmod(own, 0o711); err != nil {
		t.Fatal(err)
	}
	c := &confined{t: t, command: exec.Command("/proc/self/exe"), private: filepath.Join(own, "private")}
	if err := os.Mkdir(c.private, 0o700); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(executable)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	request := &protocol.Request{
		Executable: executable, Digest: "sha256:" + hex.EncodeToString(sum[:]), Name: "role", Own: own, Private: []string{c.private},
		Environment: []string{"WHAT=" + what, "INSIDE=" + c.private, "OUTSIDE=" + own},
	}
	if err := request.SetRole(&rolev1.RoleManifest{Name: "role"}); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(request)
	}
	answers, end, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = answers.Close() })
	if err := answers.SetReadDeadline(time.Now().Add(long)); err != nil {
		t.Fatal(err)
	}
	c.command.Env = append(os.Environ(), confineVariable+"="+filepath.Join(request.Own, "ranges"))
	c.command.ExtraFiles, c.command.Stderr = []*os.File{end}, os.Stderr
	output, err := c.command.StdoutPipe()
	if err == nil {
		c.input, err = c.command.StdinPipe()
	}
	if err == nil {
		err = c.command.Start()
	}
	_ = end.Close()
	if err == nil {
		err = json.NewEncoder(c.input).Encode(request)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.input.Close()
		_ = c.command.Wait() // how it ends is not what is tested
	})
	c.output, c.answers = bufio.NewReader(output), json.NewDecoder(answers)
	return c
}

func (c *confined) answer() (answer protocol.Answer) {
	c.t.Helper()
	if err := c.answers.Decode(&answer); err != nil {
		c.t.Fatalf("no answer: %v", err)
	}
	return answer
}

// started is the answer that the role runs, in a sandbox that keeps it from the file system.
func (c *confined) started() *protocol.Started {
	c.t.Helper()
	answer := c.answer()
	if answer.Started == nil {
		c.t.Fatalf("it does not run: %+v", answer.Refused)
	}
	lacks := func(part string) bool {
		return slices.ContainsFunc(answer.Started.Missing, func(m protocol.Missing) bool { return m.Part == part })
	}
	if lacks("landlock-files") && lacks("mounts") {
		c.t.Skip("this kernel, or this user, cannot keep a role from files")
	}
	return answer.Started
}

func TestConfined(t *testing.T) {
	c := run(t, "writes", nil)
	started := c.started()
	if root := os.Geteuid() == 0; started.UID == 0 || root == (started.UID == uint32(os.Geteuid())) {
		t.Errorf("it runs as user %d", started.UID)
	}
	output, err := io.ReadAll(c.output)
	if err != nil || string(output) != "inside: true\noutside: false\n" {
		t.Errorf("it says %q (%v)", output, err)
	}
	if ended := c.answer().Ended; ended == nil || ended.Code != 7 || ended.Signal != 0 {
		t.Errorf("it ends with %+v, want status 7", ended)
	}
	if left := c.answer().Left; left == nil || len(left.Processes) > 0 {
		t.Errorf("it leaves %+v", left)
	}
}

// TestHidden has a process leave another one, which has left its group, its session and its environment: it is found, killed and reported.
func TestHidden(t *testing.T) {
	for _, test := range []struct{ what, line string }{
		{"hides", "/proc/self/exe"},
		{"hides without a command line", "[exe]"},
		{"hides without a first thread", "[exe]"},
	} {
		t.Run(test.what, func(t *testing.T) {
			t.Parallel()
			c := run(t, test.what, nil)
			c.started()
			if ended := c.answer().Ended; ended == nil || ended.Code != 0 {
				t.Fatalf("it ends with %+v", ended)
			}
			if left := c.answer().Left; left == nil || len(left.Processes) != 1 || left.Processes[0] != test.line {
				t.Errorf("it leaves %+v, want %s", left, test.line)
			}
			// The process that was left holds the output open until it ends.
			if rest, err := io.ReadAll(c.output); err != nil {
				t.Errorf("its output does not end: %q, %v", rest, err)
			}
		})
	}
}

// TestInputEnds ends what was started by the end of the requests.
func TestInputEnds(t *testing.T) {
	c := run(t, "stays", nil)
	started := c.started()
	if line, err := c.output.ReadString('\n'); line != "here\n" {
		t.Fatalf("it says %q (%v)", line, err)
	}
	if err := c.input.Close(); err != nil {
		t.Fatal(err)
	}
	if ended := c.answer().Ended; ended == nil || ended.Signal != int(syscall.SIGKILL) {
		t.Errorf("it ends with %+v", ended)
	}
	if c.answer().Left == nil || syscall.Kill(started.PID, 0) == nil {
		t.Errorf("process %d is still there", started.PID)
	}
}

// TestSameUser runs two roles of one owner at the same time: the second one has the user to whom belongs what the first one left.
func TestSameUser(t *testing.T) {
	var own string
	first := run(t, "stays", func(r *protocol.Request) { own = r.Own }).started()
	second := run(t, "stays", func(r *protocol.Request) { r.Own = own }).started()
	if first.UID != second.UID {
		t.Errorf("the second one runs as user %d, the first one as %d", second.UID, first.UID)
	}
}

// TestKilled kills the one that has started it: the kernel ends the process with it.
func TestKilled(t *testing.T) {
	c := run(t, "stays", nil)
	c.started()
	if err := c.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// Its output ends with it.
	if _, err := io.ReadAll(c.output); err != nil {
		t.Error(err)
	}
}

func TestRefused(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no program\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte("no program\n"))
	table := map[string]struct {
		change     func(*protocol.Request)
		reason     string
		executable bool
	}{
		"changed": {func(r *protocol.Request) { r.Executable = text }, "was changed at the same time", false},
		"no program": {func(r *protocol.Request) {
			r.Executable, r.Digest = text, "sha256:"+hex.EncodeToString(sum[:])
		}, "exec format error", true},
		"wants what is not there": {func(r *protocol.Request) {
			_ = r.SetRole(&rolev1.RoleManifest{Name: "role", Grants: []*rolev1.Grant{{Name: "read-path", Parameters: map[string]string{"path": "/no/such/path"}}}})
		}, "/no/such/path", false},
	}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		test := table[name]
		t.Run(name, func(t *testing.T) {
			refused := run(t, "stays", test.change).answer().Refused
			if refused == nil || !strings.Contains(refused.Reason, test.reason) || refused.Executable != test.executable {
				t.Errorf("%+v, want a reason with %q", refused, test.reason)
			}
		})
	}
}
