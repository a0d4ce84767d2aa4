package fscrypt_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
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
	"github.com/reeveproject/reeve/core/storage/fscrypt"
	"github.com/reeveproject/reeve/core/storage/volume"
)

// patience is longer than any process on a busy machine has the mounts of a test for a moment; impatience is for uses that do not end.
const patience, impatience = time.Minute, 2 * time.Second

// With this in its environment the test program makes one call on a volume and ends. The key is no secret here.
const callEnv = "REEVE_FSCRYPT_TEST_CALL"

func TestMain(m *testing.M) {
	volume.Patience = patience
	if call := os.Getenv(callEnv); call != "" {
		os.Exit(child(strings.Split(call, "|")))
	}
	os.Exit(m.Run())
}

// child makes the call action|directory|kind|key|step: it ends itself before it takes the step of that number, which is 0 for none, and prints how many it took.
func child(call []string) int {
	stop, err := strconv.Atoi(call[4])
	if err != nil {
		return fail(err)
	}
	taken := 0
	n := node{dir: call[1], image: call[2] == "image", size: size}
	kind := n.kind(func(step string) {
		if taken++; taken == stop {
			fmt.Println(step)
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}
	})
	key, err := keyOf(call[3])
	if err != nil {
		return fail(err)
	}
	switch call[0] {
	case "format":
		err = kind.Format(context.Background(), key)
	case "open":
		err = kind.Open(context.Background(), key)
	case "close":
		err = kind.Close(context.Background())
	case "state":
		_, err = kind.State(context.Background())
	case "no-loop", "no-device":
		if err = hideLoops(call[0] == "no-device"); err == nil {
			err = kind.Open(context.Background(), key)
		}
		var loop *fscrypt.LoopError
		if errors.As(err, &loop) {
			fmt.Println(loop)
			return 0
		}
	}
	if err != nil {
		return fail(err)
	}
	fmt.Println(taken)
	return 0
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// hideLoops has this process, which is in a mount namespace of its own, see no loop devices, or only what they are asked for by.
func hideLoops(control bool) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("none", "/dev", "tmpfs", 0, ""); err != nil {
		return err
	}
	if !control {
		return nil
	}
	return unix.Mknod("/dev/loop-control", unix.S_IFCHR|0o600, int(unix.Mkdev(10, 237)))
}

func keyOf(text string) (*keys.Secret, error) {
	content, err := hex.DecodeString(text)
	if err != nil {
		return nil, err
	}
	return keys.SecretOf(content)
}

// node is where a node of a test has its volume.
type node struct {
	dir   string
	image bool
	size  int64
}

const size = fscrypt.MinSize

func (n node) data() string  { return filepath.Join(n.dir, "data") }
func (n node) file() string  { return filepath.Join(n.dir, "system", "volume.img") }
func (n node) mount() string { return filepath.Join(n.dir, "system", "volume") }

func (n node) config(step func(string)) fscrypt.Config {
	config := fscrypt.Config{Data: n.data(), Step: step}
	if n.image {
		config.Image, config.Mount, config.Size = n.file(), n.mount(), n.size
	}
	return config
}

func (n node) kind(step func(string)) volume.Kind { return fscrypt.New(n.config(step)) }

// call makes a call in a process of its own.
func (n node) call(t *testing.T, action, key string, step int, change func(*exec.Cmd)) (string, error) {
	t.Helper()
	kind := "directory"
	if n.image {
		kind = "image"
	}
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(executable)
	command.Env = append(os.Environ(), callEnv+"="+strings.Join([]string{action, n.dir, kind, key, strconv.Itoa(step)}, "|"))
	var stderr bytes.Buffer
	command.Stderr = &stderr
	if change != nil {
		change(command)
	}
	output, err := command.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, stderr.String())
	}
	return strings.TrimSpace(string(output)), err
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("cannot run: mounting and loop devices need root")
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skip("cannot run: this kernel has no loop devices")
	}
	if _, err := exec.LookPath("/usr/sbin/mkfs.ext4"); err != nil {
		t.Skip("cannot run: mkfs.ext4 is not installed (apt-get install e2fsprogs)")
	}
}

// newNode returns a node whose volume is unmounted when the test ends, however it ends. A directory that is to be encrypted lies in a file system of its own.
func newNode(t *testing.T, image bool) node {
	t.Helper()
	needRoot(t)
	dir, err := os.MkdirTemp("/tmp", "reeve-fscrypt-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unmountAll(t, dir)
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	n := node{dir: dir, image: image, size: size}
	if !image {
		mountNew(t, n.dir, true)
	}
	for _, path := range []string{filepath.Join(n.dir, "system"), n.data()} {
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// mountNew mounts a new ext4 at a directory.
func mountNew(t *testing.T, dir string, encrypt bool) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "fs")
	run(t, "truncate", "-s", "64M", file)
	args := []string{"-q", "-F"}
	if encrypt {
		args = append(args, "-O", "encrypt")
	}
	run(t, "mkfs.ext4", append(args, file)...)
	run(t, "mount", "-o", "loop", file, dir)
	// The test's own mount is unmounted before its file is removed.
	t.Cleanup(func() { unmountAll(t, dir) })
}

// unmountAll unmounts everything at a directory and below.
func unmountAll(t *testing.T, dir string) {
	t.Helper()
	mounts, err := volume.Mounts()
	if err != nil {
		t.Error(err)
	}
	for i := len(mounts) - 1; i >= 0; i-- {
		if target := mounts[i].Target; target == dir || strings.HasPrefix(target, dir+"/") {
			if err := unix.Unmount(target, unix.MNT_DETACH); err != nil {
				t.Errorf("unmount %s: %v", target, err)
			}
		}
	}
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

// newKey returns a new key, and its bytes.
func newKey(t *testing.T) (*keys.Secret, []byte) {
	t.Helper()
	key, err := keys.NewSecret(fscrypt.KeySize)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(key.Destroy)
	var raw []byte
	if err := key.Use(func(content []byte) error { raw = bytes.Clone(content); return nil }); err != nil {
		t.Fatal(err)
	}
	return key, raw
}

func wantState(t *testing.T, kind volume.Kind, want volume.State) {
	t.Helper()
	got, err := kind.State(t.Context())
	if err != nil || got != want {
		t.Fatalf("state %v, %v, want %v", got, err, want)
	}
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
