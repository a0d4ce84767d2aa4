package usertest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// RunTests runs the tests of this program whose names match pattern once more, as a user who is nobody in particular. It skips the test unless it runs as root.
// The environment is environment, PATH and GORACE.
func RunTests(t *testing.T, pattern string, environment ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("this is an ordinary user")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/tmp", "rv")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	// Another process copies it: one that this program forks meanwhile would hold a file open that is written here, and keep it from being executed.
	copied := filepath.Join(dir, "tests")
	if output, err := exec.Command("install", "-m", "755", self, copied).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	tests := exec.CommandContext(t.Context(), copied, "-test.v", "-test.short", "-test.timeout=20m", "-test.run="+pattern)
	tests.Dir = "/"
	tests.Env = append(environment, "PATH="+os.Getenv("PATH"), "GORACE="+os.Getenv("GORACE"))
	user := uint32(New(t))
	tests.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user, Groups: []uint32{}}}
	output, err := tests.CombinedOutput()
	if err == nil && !strings.Contains(string(output), "--- PASS: ") {
		err = fmt.Errorf("no test matches %s", pattern)
	}
	if err != nil {
		t.Fatalf("as user %d: %v\n%s", user, err, output)
	}
	if testing.Verbose() {
		t.Logf("as user %d:\n%s", user, output)
	}
}
