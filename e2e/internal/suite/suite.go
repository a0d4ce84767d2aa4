// Package suite is what the tests of one package of e2e share: the programs, built once, and a directory that roles of every user can pass through, with a short
// path, since paths of sockets end at 107 bytes.
package suite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/reeveproject/reeve/core/usertest"
	"github.com/reeveproject/reeve/e2e/internal/build"
	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/sdk/leaktest"
)

// Suite is set by Main, before the first test.
type Suite struct {
	Base     string
	Programs *build.Programs
	// Ordinary is a user whom nobody else is, for the tests that run as root; nil if they do not.
	Ordinary *devcluster.User
}

// Main runs the tests of a package, and ends the process. workspace leads to the directory of go.work; prefix begins the name of the directory, and has two
// letters.
func (s *Suite) Main(m *testing.M, workspace, prefix string) {
	if err := s.setUp(workspace, prefix); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		_ = os.RemoveAll(s.Base)
		os.Exit(1)
	}
	leaktest.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if code == 0 || os.Getenv("REEVE_E2E_KEEP") == "" {
			_ = os.RemoveAll(s.Base)
		}
		os.Exit(code)
	}))
}

func (s *Suite) setUp(workspace, prefix string) (err error) {
	if workspace, err = filepath.Abs(workspace); err != nil {
		return err
	}
	if os.Geteuid() == 0 {
		id, err := usertest.Take()
		if err != nil {
			return err
		}
		s.Ordinary = &devcluster.User{UID: id, GID: id}
	}
	if s.Base, err = os.MkdirTemp("", prefix); err != nil {
		return err
	}
	if err = os.Chmod(s.Base, 0o755); err != nil {
		return err
	}
	s.Programs, err = build.ForTests(context.Background(), workspace, filepath.Join(s.Base, "bin"))
	return err
}

// Cluster returns a cluster of the test's own user.
func (s *Suite) Cluster(t testing.TB) *devcluster.Cluster {
	t.Helper()
	return devcluster.New(t, devcluster.Options{Programs: s.Programs, Base: s.Base})
}

// OrdinaryCluster returns a cluster of an ordinary user, also where the test's own user is root.
func (s *Suite) OrdinaryCluster(t testing.TB) *devcluster.Cluster {
	t.Helper()
	return devcluster.New(t, devcluster.Options{Programs: s.Programs, Base: s.Base, User: s.Ordinary})
}
