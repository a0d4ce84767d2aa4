package roles_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/reeveproject/reeve/core/plugin/plugintest"
	"github.com/reeveproject/reeve/core/usertest"
)

// built is the test plugin, made by the first test that needs it in a directory that TestMain removes.
var built struct {
	once       sync.Once
	dir        string
	executable *plugintest.Executable
	err        error
}

func cleanup(code int) {
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

func executable(t *testing.T) *plugintest.Executable {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("/tmp", "rv"); built.err == nil {
			if built.err = os.Chmod(built.dir, 0o711); built.err == nil {
				built.executable, built.err = plugintest.Build(built.dir)
			}
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.executable
}

// TestAsOrdinaryUser runs the tests with real plugins once more, as a user who is nobody in particular.
func TestAsOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this is an ordinary user")
	}
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// Copied by another process: one that this program forks meanwhile would hold a file open that is written here, and keep it from being executed.
	copied := filepath.Join(plugintest.Dir(t), "tests")
	if output, err := exec.Command("cp", self, copied).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	if err := os.Chmod(copied, 0o755); err != nil {
		t.Fatal(err)
	}
	tests := exec.CommandContext(t.Context(), copied, "-test.v", "-test.short", "-test.run="+ordinaryTests, "-test.timeout=10m")
	tests.Dir = "/"
	tests.Env = []string{plugintest.ExecutableVariable + "=" + executable(t).Path(), "GORACE=" + os.Getenv("GORACE")}
	user := uint32(usertest.New(t))
	tests.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user, Groups: []uint32{}}}
	output, err := tests.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
}
