package luks_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/storage/luks"
	"github.com/reeveproject/reeve/core/storage/volume"
)

// With this in its environment the test program makes one call on a volume and ends. The key is no secret here.
const callEnv = "REEVE_LUKS_TEST_CALL"

const nodeID = "reeve-00112233445566778899aabbccddeeff"

func TestMain(m *testing.M) {
	volume.Patience = time.Minute // for the other tests of a busy machine
	if call := os.Getenv(callEnv); call != "" {
		os.Exit(child(strings.Split(call, "|")))
	}
	os.Exit(m.Run())
}

// child makes the call action|device|data|key|next|step: it ends itself before it takes the step of that number, which is 0 for none, and prints how many it
// took.
func child(call []string) int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	stop, err := strconv.Atoi(call[5])
	if err != nil {
		return fail(err)
	}
	var pair [2]*keys.Secret
	for i, text := range call[3:5] {
		content, err := hex.DecodeString(text)
		if err != nil {
			return fail(err)
		}
		if pair[i], err = keys.SecretOf(content); err != nil {
			return fail(err)
		}
	}
	taken := 0
	kind := luks.New(luks.Config{Device: call[1], Data: call[2], NodeID: nodeID, Step: func(step string) {
		if taken++; taken == stop {
			fmt.Println(step)
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}
	}})
	switch ctx := context.Background(); call[0] {
	case "format":
		err = kind.Format(ctx, pair[0])
	case "open":
		err = kind.Open(ctx, pair[0])
	case "close":
		err = kind.Close(ctx)
	case "rotate":
		err = kind.Rotate(ctx, pair[0], pair[1])
	}
	if err != nil {
		return fail(err)
	}
	fmt.Println(taken)
	return 0
}

// node is where a node of a test has its volume: on a loop device.
type node struct{ dir, file, device string }

func (n node) data() string { return filepath.Join(n.dir, "data") }

func (n node) kind() volume.Kind {
	return luks.New(luks.Config{Device: n.device, Data: n.data(), NodeID: nodeID})
}

func (n node) call(t *testing.T, action string, key, next []byte, step int) (string, error) {
	t.Helper()
	executable, err := os.Executable()
	must(t, err)
	command := exec.Command(executable)
	command.Env = append(os.Environ(), callEnv+"="+strings.Join([]string{action, n.device, n.data(), hex.EncodeToString(key), hex.EncodeToString(next), strconv.Itoa(step)}, "|"))
	var stderr bytes.Buffer
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, stderr.String())
	}
	return strings.TrimSpace(string(output)), err
}

func needPrograms(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("cannot run: block devices need root")
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skip("cannot run: this kernel has no loop devices")
	}
	if _, err := exec.LookPath("/usr/sbin/cryptsetup"); err != nil {
		t.Skip("cannot run: cryptsetup is not installed (apt-get install cryptsetup-bin)")
	}
}

func hasMapper() bool {
	content, err := os.ReadFile("/proc/misc")
	return err == nil && bytes.Contains(content, []byte("device-mapper"))
}

func needMapper(t *testing.T) {
	t.Helper()
	needPrograms(t)
	if !hasMapper() {
		t.Skip("cannot run: this kernel has no device mapper (dm_mod)")
	}
}

// newNode returns a node with an empty device.
func newNode(t *testing.T) node {
	t.Helper()
	needPrograms(t)
	dir, err := os.MkdirTemp("/tmp", "reeve-luks-")
	must(t, err)
	n := node{dir: dir, file: filepath.Join(dir, "disk")}
	file, err := os.Create(n.file)
	must(t, err)
	must(t, errors.Join(file.Truncate(luks.MinSize), file.Close()))
	n.device = run(t, "losetup", "--find", "--show", n.file)
	t.Cleanup(func() {
		if hasMapper() {
			if err := n.kind().Close(context.Background()); err != nil {
				t.Log(err)
			}
			// After a test of an interrupted call it may be open without being mounted.
			_ = exec.Command("/usr/sbin/cryptsetup", "close", luks.MappingName(nodeID)).Run()
		}
		run(t, "losetup", "--detach", n.device)
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	must(t, os.Mkdir(n.data(), 0o700))
	return n
}

// contain makes a container on the device as cryptsetup does it by hand.
func (n node) contain(t *testing.T, uuid, label string, key []byte) {
	t.Helper()
	command := exec.Command("/usr/sbin/cryptsetup", "luksFormat", "--batch-mode", "--type", "luks2", "--uuid", uuid, "--label", label,
		"--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000", "--key-file", "-", n.device)
	command.Stdin = bytes.NewReader(key)
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
}

func (n node) write(t *testing.T, content string, at int64) {
	t.Helper()
	file, err := os.OpenFile(n.device, os.O_WRONLY, 0)
	must(t, err)
	_, err = file.WriteAt([]byte(content), at)
	must(t, errors.Join(err, file.Sync(), file.Close()))
}

// edges returns the first and the last MiB of the device.
func (n node) edges(t *testing.T) string {
	t.Helper()
	file, err := os.Open(n.device)
	must(t, err)
	defer func() { _ = file.Close() }()
	content := make([]byte, 2<<20)
	_, err = io.ReadFull(file, content[:1<<20])
	must(t, err)
	_, err = file.ReadAt(content[1<<20:], luks.MinSize-1<<20)
	must(t, err)
	return string(content)
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	command := exec.Command(name, args...)
	command.Env = append(os.Environ(), "PATH=/usr/sbin:/usr/bin:/sbin:/bin")
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, output)
	}
	return strings.TrimSpace(string(output))
}

func newKey(t *testing.T) (*keys.Secret, []byte) {
	t.Helper()
	key, err := keys.NewSecret(luks.KeySize)
	must(t, err)
	t.Cleanup(key.Destroy)
	var raw []byte
	must(t, key.Use(func(content []byte) error { raw = bytes.Clone(content); return nil }))
	return key, raw
}

func wantState(t *testing.T, kind volume.Kind, want volume.State) {
	t.Helper()
	got, err := kind.State(t.Context())
	if err != nil || got != want {
		t.Fatalf("state %v, %v, want %v", got, err, want)
	}
}

func timed(t *testing.T, what string, do func() error) {
	t.Helper()
	start := time.Now()
	must(t, do())
	t.Logf("%s: %v", what, time.Since(start).Round(time.Millisecond))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ordinary makes a command that of an ordinary user.
func ordinary(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
}
