package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/archive/internal/curatortest"
	"github.com/reeveproject/reeve/sdk/leaktest"
	"github.com/reeveproject/reeve/sdk/role"
	"github.com/reeveproject/reeve/sdk/roletest"
)

// The test's binary is the plugin if this variable is set.
const asPlugin = "REEVE_TEST_PLUGIN"

func TestMain(m *testing.M) {
	if os.Getenv(asPlugin) != "" {
		main()
	}
	leaktest.VerifyTestMain(m)
}

func launch(t *testing.T) *roletest.Process {
	t.Helper()
	return roletest.LaunchTest(t, asPlugin+"=1", "GORACE=atexit_sleep_ms=10")
}

// TestArchive has the plugin copy a snapshot into the directory that it is granted.
func TestArchive(t *testing.T) {
	host, directory := roletest.NewCluster(t, 1).Host(0), t.TempDir()
	host.Grant("write-path", map[string]string{"path": directory})
	host.Grant("connect", map[string]string{"port": role.AnyPort})
	file := curatortest.Start(t, host).Add(t, "20261128T180000Z-1", []byte("payload"))
	process := launch(t)
	if err := process.Start(host, "archive", `{"sameDisk":true}`); err != nil {
		t.Fatal(err)
	}
	process.AwaitReady()
	if content, err := os.ReadFile(filepath.Join(directory, host.NodeID(), "20261128T180000Z-1.snapshot")); err != nil || !bytes.Equal(content, file) {
		t.Errorf("%d bytes, %v", len(content), err)
	}
	if metrics := process.Metrics(); !strings.Contains(metrics, `archive_copies{place="directory"} 1`) {
		t.Errorf("metrics: %s", metrics)
	}
	if err := process.CheckHealth(); err != nil {
		t.Error(err)
	}
	if err := process.Stop(time.Minute); err != nil {
		t.Error(err)
	}
	if code := process.Exit(); code != 0 {
		t.Errorf("the process ended with status %d", code)
	}
}

// TestRefused holds that a role which could not do what is configured does not start.
func TestRefused(t *testing.T) {
	process := launch(t)
	for configuration, says := range map[string]string{
		`{"directory": "backup"}`: "/directory", `{"directory": "/mnt/backup"}`: "archive:write-path:path=/mnt/backup", ``: "there is no place for copies",
	} {
		if err := process.Start(roletest.NewHost(t), "archive", configuration); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want it to say %q", configuration, err, says)
		}
	}
}
