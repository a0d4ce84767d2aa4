package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/hostsfile/keeper"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/leaktest"
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
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return roletest.Launch(t, executable, asPlugin+"=1", "GORACE=atexit_sleep_ms=10")
}

func directory(address string) *hostv1.Directory {
	return &hostv1.Directory{Nodes: []*hostv1.DirectoryNode{{NodeId: "reeve-01", Addresses: []string{address}}}}
}

func TestHostsfile(t *testing.T) {
	const before = "127.0.0.1\tlocalhost\r\nno newline"
	host := roletest.NewHost(t)
	host.SetFile("/srv/hosts", []byte(before))
	host.Network.Set([]string{"192.0.2.100"})
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
	if got := string(host.File("/srv/hosts")); !strings.Contains(got, "\n192.0.2.2\treeve-01") || strings.Contains(got, "192.0.2.1\t") {
		t.Errorf("the file holds %q", got)
	}

	if err := process.Stop(time.Minute); err != nil {
		t.Error(err)
	}
	if code := process.Exit(); code != 0 {
		t.Errorf("the process ended with status %d", code)
	}
	if got := string(host.File("/srv/hosts")); got != before+"\n" {
		t.Errorf("the role leaves %q", got)
	}
}

// The node's own addresses are followed as the machine has them.
func TestAddressesChange(t *testing.T) {
	host := roletest.NewHost(t)
	host.SetFile("/srv/hosts", nil)
	host.Directory.Set(directory("192.0.2.1"))
	host.Network.Set([]string{"192.0.2.100"})
	process := launch(t)
	if err := process.Start(host, "hostsfile", ""); err != nil {
		t.Fatal(err)
	}
	process.AwaitReady()
	for _, address := range []string{"192.0.2.101", "2001:db8::101", "192.0.2.102"} {
		host.Network.Set([]string{address})
		await(t, func() (bool, string) {
			got := string(host.File("/srv/hosts"))
			return strings.Count(got, "\treeve-000") == 1 && strings.Contains(got, "\n"+address+"\treeve-000") && strings.Contains(got, "\n192.0.2.1\treeve-01 "), got
		})
	}
	if err := process.CheckHealth(); err != nil {
		t.Error(err)
	}
	if status, _ := process.Status().Get(); status.GetState() != rolev1.RoleState_ROLE_STATE_READY {
		t.Errorf("the role is %v", status)
	}
}

// await waits for what the role does without telling of it.
func await(t *testing.T, condition func() (bool, string)) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		ok, now := condition()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("it does not come to that: %q", now)
		}
		time.Sleep(time.Millisecond)
	}
}

// What the configuration asks for beside the file, with the grants for it and without.
func TestMachine(t *testing.T) {
	const configuration = `{"hostname": true, "machineID": true}`
	begin := func(t *testing.T, prepare func(*roletest.Host)) (*roletest.Host, *roletest.Process) {
		host := roletest.NewHost(t)
		host.SetFile("/srv/hosts", nil)
		host.MountFile("/srv/hosts")
		host.Directory.Set(directory("192.0.2.1"))
		host.Network.Set([]string{"192.0.2.100"})
		prepare(host)
		process := launch(t)
		if err := process.Start(host, "hostsfile", configuration); err != nil {
			t.Fatal(err)
		}
		return host, process
	}
	t.Run("granted", func(t *testing.T) {
		host, process := begin(t, func(host *roletest.Host) {
			host.GrantHostname("former")
			host.GrantMachineID("")
		})
		now := process.AwaitReady()
		if got := host.Hostname() + " " + host.MachineID(); got != "reeve-000102030405060708090a0b0c0d0e0f 000102030405060708090a0b0c0d0e0f" {
			t.Errorf("the machine is %s", got)
		}
		if got := now.GetValues()["written-in-place"]; got != "/srv/hosts" || !strings.Contains(process.Log(), "written in place") {
			t.Errorf("written in place: %q", got)
		}
	})
	t.Run("not granted", func(t *testing.T) {
		_, process := begin(t, func(*roletest.Host) {})
		reason := process.AwaitDegraded().GetReason()
		for _, part := range []string{"set-hostname with path /etc/hostname", "set-machine-id with path /etc/machine-id"} {
			if !strings.Contains(reason, part) {
				t.Errorf("the reason does not speak of %q: %s", part, reason)
			}
		}
	})
	t.Run("another ID", func(t *testing.T) {
		host, process := begin(t, func(host *roletest.Host) {
			host.GrantHostname("former")
			host.GrantMachineID("f")
		})
		if reason := process.AwaitDegraded().GetReason(); !strings.Contains(reason, "another ID") || host.MachineID() != "f" {
			t.Errorf("the machine is %s, and the reason %q", host.MachineID(), reason)
		}
	})
}

// A role that may not touch the file that it is to keep says so at once.
func TestPathThatIsNotGranted(t *testing.T) {
	process := launch(t)
	for name, test := range map[string]struct {
		grant, configuration string
		says                 []string
	}{
		"no grant":      {"", "", []string{"/path: ", "keep /etc/hosts", "grant"}},
		"another grant": {"/srv/hosts", `{"path": "/srv/other"}`, []string{"/path: ", "granted to replace /srv/hosts", "keep /srv/other"}},
	} {
		host := roletest.NewHost(t) // of each case's own: what one grants is nothing to the other
		if test.grant != "" {
			host.SetFile(test.grant, nil)
		}
		err := process.Start(host, "hostsfile", test.configuration)
		for _, part := range test.says {
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(status.Convert(err).Message(), part) {
				t.Errorf("%s: the refusal does not speak of %q: %v", name, part, err)
			}
		}
	}
}

func TestConfigurationIsRefused(t *testing.T) {
	err := launch(t).Start(roletest.NewHost(t), "hostsfile", `{"path": "hosts", "mode": 1, "hostname": "a_b", "machineID": "yes"}`)
	if status.Code(err) != codes.InvalidArgument || len(status.Convert(err).Details()) != 3 {
		t.Errorf("got: %v", err)
	}
}

// The manifest asks for the usual files, and its schema is JSON that names the fields of the configuration.
func TestManifest(t *testing.T) {
	described, err := launch(t).Service().Describe(t.Context(), &rolev1.DescribeRequest{})
	if err != nil {
		t.Fatal(err)
	}
	role := described.GetManifest().GetRoles()[0]
	var grants []string
	for _, grant := range role.GetGrants() {
		grants = append(grants, grant.GetName()+" "+grant.GetParameters()["path"]+grant.GetParameters()["port"])
	}
	if got := strings.Join(grants, ", "); got != "replace-file "+keeper.DefaultPath+", set-hostname /etc/hostname, set-machine-id /etc/machine-id, connect 53" {
		t.Errorf("grants %s", got)
	}
	var schema struct {
		Properties map[string]any
	}
	if err := json.Unmarshal([]byte(role.GetConfigurationSchema()), &schema); err != nil || schema.Properties["path"] == nil ||
		schema.Properties["hostname"] == nil || schema.Properties["machineID"] == nil || len(schema.Properties) != 3 {
		t.Errorf("the schema has %v, %v", schema.Properties, err)
	}
}

// Whoever is left on a machine whose node stops needs the names until it is back.
func TestBlockStays(t *testing.T) {
	for reason, stays := range map[rolev1.StopReason]bool{
		rolev1.StopReason_STOP_REASON_NODE: true, rolev1.StopReason_STOP_REASON_RESTART: false,
		rolev1.StopReason_STOP_REASON_REMOVED: false, rolev1.StopReason_STOP_REASON_UNSPECIFIED: false,
	} {
		host := roletest.NewHost(t)
		host.SetFile("/srv/hosts", []byte("127.0.0.1\tlocalhost\n"))
		host.Directory.Set(directory("192.0.2.1"))
		host.Network.Set([]string{"192.0.2.1"})
		process := launch(t)
		if err := process.Start(host, "hostsfile", ""); err != nil {
			t.Fatal(err)
		}
		process.AwaitReady()
		if err := process.StopFor(time.Minute, reason); err != nil {
			t.Error(err)
		}
		if code := process.Exit(); code != 0 {
			t.Errorf("%s: the process ended with status %d", reason, code)
		}
		if kept := strings.Contains(string(host.File("/srv/hosts")), "192.0.2.1\t"); kept != stays {
			t.Errorf("%s: the block is kept: %t", reason, kept)
		}
	}
}

// A block that cannot be taken out is the last that the role says of itself, so that who removes the role hears of it.
func TestBlockThatCannotBeRemoved(t *testing.T) {
	host := roletest.NewHost(t)
	host.SetFile("/srv/hosts", []byte("127.0.0.1\tlocalhost\n"))
	host.Directory.Set(directory("192.0.2.1"))
	host.Network.Set([]string{"192.0.2.1"})
	process := launch(t)
	if err := process.Start(host, "hostsfile", ""); err != nil {
		t.Fatal(err)
	}
	process.AwaitReady()
	host.RefuseFile("/srv/hosts", status.Error(codes.FailedPrecondition, "cannot replace /srv/hosts: it is immutable"))
	if err := process.StopFor(time.Minute, rolev1.StopReason_STOP_REASON_REMOVED); err != nil {
		t.Error(err)
	}
	process.Exit()
	last, _ := process.Status().Get()
	if last.GetState() != rolev1.RoleState_ROLE_STATE_STOPPED || !strings.Contains(last.GetReason(), "the block was not removed") || !strings.Contains(last.GetReason(), "it is immutable") {
		t.Errorf("the role last says %v", last)
	}
}
