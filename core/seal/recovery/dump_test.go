package recovery_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"filippo.io/age"
	"golang.org/x/sys/unix"
)

// A process that holds the keys of a volume, and has done with them all that a node does, leaves none of them in its core dump.
func TestSecretsAreNotInCoreDump(t *testing.T) {
	if pattern, err := os.ReadFile("/proc/sys/kernel/core_pattern"); err != nil || strings.TrimSpace(string(pattern)) == "" || strings.ContainsAny(string(pattern), "|/") {
		t.Skipf("cannot run: this machine's kernel does not write core dumps into the directory of the process (kernel.core_pattern is %q, %v)", pattern, err)
	}
	directory := t.TempDir()
	program := filepath.Join(directory, "hold")
	if output, err := exec.Command("go", "build", "-o", program, "./testdata/hold").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	identity, err := age.GenerateX25519Identity()
	must(t, err)
	told, tell, err := os.Pipe()
	must(t, err)
	defer told.Close()
	// The limit is raised by the shell, for the program alone; not every user may.
	command := exec.Command("sh", "-c", `ulimit -c unlimited || exit 77; exec "$0" "$@"`, program, directory, identity.Recipient().String())
	command.Dir = directory
	// A thread that is preempted while it copies a key has part of the key in its vector registers, which Go's runtime then saves in ordinary memory: the limit that
	// docs/explanation/key-hierarchy.md names. Here no thread is preempted.
	command.Env = append(os.Environ(), "GOTRACEBACK=crash", "GODEBUG=asyncpreemptoff=1")
	command.ExtraFiles = []*os.File{tell}
	stdin, err := command.StdinPipe()
	must(t, err)
	defer stdin.Close()
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	must(t, command.Start())
	must(t, tell.Close())
	held, err := io.ReadAll(told)
	must(t, err)
	must(t, command.Process.Signal(unix.SIGABRT))
	_ = command.Wait()
	status := command.ProcessState.Sys().(syscall.WaitStatus)
	if status.ExitStatus() == 77 {
		t.Skip("cannot run: this user may not have core dumps written (ulimit -c)")
	}
	if !status.CoreDump() {
		t.Fatalf("no core dump was written: %s\n%s", command.ProcessState, output.String())
	}
	dumps, err := filepath.Glob(filepath.Join(directory, "core*"))
	if err != nil || len(dumps) != 1 {
		t.Fatalf("core dumps: %v, %v", dumps, err)
	}
	dump, err := os.ReadFile(dumps[0])
	must(t, err)
	var secrets [][]byte
	for len(held) > 0 {
		size := int(held[0])
		secrets, held = append(secrets, held[1:1+size]), held[1+size:]
	}
	if len(secrets) != 6 {
		t.Fatalf("the program told %d secrets: %s", len(secrets), output.String())
	}
	if !bytes.Contains(dump, secrets[0]) {
		t.Fatal("what is in ordinary memory is not in the core dump: the test proves nothing")
	}
	for i, name := range []string{"NUK", "next NUK", "CUK", "data key", "configuration key"} {
		secret := secrets[i+1]
		for form, text := range map[string][]byte{
			"itself": secret, "the first half of it": secret[:len(secret)/2], "the second half of it": secret[len(secret)/2:],
			"in base64": []byte(base64.StdEncoding.EncodeToString(secret)[:16]), "in hex": []byte(hex.EncodeToString(secret[:8])),
		} {
			if bytes.Contains(dump, text) {
				t.Errorf("the %s is in the core dump (%s, at %d of %d)", name, form, bytes.Index(dump, text), len(dump))
			}
		}
	}
}
