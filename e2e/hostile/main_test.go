package hostile

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/reeveproject/reeve/core/usertest"
	"github.com/reeveproject/reeve/e2e/internal/build"
	"github.com/reeveproject/reeve/e2e/internal/devcluster"
)

// suite is what all tests share. It is set before the first of them.
var suite struct {
	// base is a directory that roles of every user can pass through, with a short path: socket paths end at 107 bytes.
	base     string
	programs *build.Programs
}

// ordinary is a user whom nobody else is, for the tests that run as root; nil if they do not.
var ordinary *devcluster.User

func TestMain(m *testing.M) {
	if base := os.Getenv(guardVariable); base != "" {
		guard(base)
		return
	}
	release, err := setUp()
	if err != nil {
		fmt.Fprintln(os.Stderr, "hostile:", err)
		_ = os.RemoveAll(suite.base)
		os.Exit(1)
	}
	code := m.Run()
	release()
	if code == 0 || os.Getenv("REEVE_E2E_KEEP") == "" {
		_ = os.RemoveAll(suite.base)
	}
	os.Exit(code)
}

// setUp makes what all tests share, and something that ends what they have started if they cannot. release ends that.
func setUp() (release func(), err error) {
	workspace, err := filepath.Abs("../..")
	if err != nil {
		return nil, err
	}
	if isRoot() {
		id, err := usertest.Take()
		if err != nil {
			return nil, err
		}
		ordinary = &devcluster.User{UID: id, GID: id}
	}
	if suite.base, err = os.MkdirTemp("", "rh"); err != nil {
		return nil, err
	}
	if err := os.Chmod(suite.base, 0o755); err != nil {
		return nil, err
	}
	if release, err = startGuard(suite.base); err != nil {
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	suite.programs, err = build.ForTests(context.Background(), workspace, filepath.Join(suite.base, "bin"))
	return release, err
}

func isRoot() bool { return os.Geteuid() == 0 }
