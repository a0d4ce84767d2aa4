package roles_test

import (
	"os"
	"sync"
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
	t.Parallel()
	usertest.RunTests(t, ordinaryTests, plugintest.ExecutableVariable+"="+executable(t).Path())
}
