package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/hostsfile/keeper"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/roletest"
)

// The test's binary is the plugin if this variable is set.
const asPlugin = "REEVE_TEST_PLUGIN"

func TestMain(m *testing.M) {
	if os.Getenv(asPlugin) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

func launch(t *testing.T) *roletest.Process {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return roletest.Launch(t, executable, asPlugin+"=1")
}

func directory(address string) *hostv1.Directory {
	return &hostv1.Directory{Nodes: []*hostv1.DirectoryNode{{NodeId: "reeve-01", Addresses: []string{address}}}}
}

func TestHostsfile(t *testing.T) {
	const before = "127.0.0.1\tlocalhost\r\nno newline"
	host := roletest.NewHost(t)
	host.SetFile("/srv/hosts", []byte(before))
	process := launch(t)
	if err := process.Start(host, "hostsfile", `{"path": "/srv/hosts"}`); err != nil {
		t.Fatal(err)
	}
	host.Directory.Set(directory("192.0.2.1"))
	process.AwaitReady()
	if got := string(host.File("/srv/hosts")); !strings.HasPrefix(got, before+"\n# BEGIN reeve\n") ||
		!strings.Contains(got, "\n192.0.2.1\treeve-01 reeve-01.node.reeve\n") {
		t.Errorf("the file holds %q", got)
	}

	host.RefuseFile("/srv/hosts", status.Error(codes.Internal, "the disk is full"))
	host.Directory.Set(directory("192.0.2.2"))
	now := process.AwaitDegraded()
	if !strings.Contains(now.GetReason(), "the disk is full") {
		t.Errorf("reason %q", now.GetReason())
	}
	host.RefuseFile("/srv/hosts", nil)
	process.AwaitReady()
	if got := string(host.File("/srv/hosts")); !strings.Contains(got, "\n192.0.2.2\treeve-01") || strings.Contains(got, "192.0.2.1") {
		t.Errorf("the file holds %q", got)
	}

	if err := process.Stop(10 * time.Second); err != nil {
		t.Error(err)
	}
	if code := process.Exit(); code != 0 {
		t.Errorf("the process ended with status %d", code)
	}
	if got := string(host.File("/srv/hosts")); got != before {
		t.Errorf("the role leaves %q", got)
	}
}

func TestConfigurationIsRefused(t *testing.T) {
	err := launch(t).Start(roletest.NewHost(t), "hostsfile", `{"path": "hosts", "mode": 1}`)
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("got: %v", err)
	}
}

// The manifest asks for the usual file, and its schema is JSON that names the configuration's field.
func TestManifest(t *testing.T) {
	described, err := launch(t).Service().Describe(t.Context(), &rolev1.DescribeRequest{})
	if err != nil {
		t.Fatal(err)
	}
	role := described.GetManifest().GetRoles()[0]
	if grants := role.GetGrants(); len(grants) != 1 || grants[0].GetName() != "replace-file" || grants[0].GetParameters()["path"] != keeper.DefaultPath {
		t.Errorf("grants %v", grants)
	}
	var schema struct {
		Properties struct {
			Path struct{ Type string }
		}
	}
	if err := json.Unmarshal([]byte(role.GetConfigurationSchema()), &schema); err != nil || schema.Properties.Path.Type != "string" {
		t.Errorf("path is a %q, %v", schema.Properties.Path.Type, err)
	}
}
