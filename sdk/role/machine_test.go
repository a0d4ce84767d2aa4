package role_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/sdk/role"
	"github.com/reeveproject/reeve/sdk/roletest"
)

// machine runs within the role: it sets the machine's names and shows what came of it.
func machine(ctx context.Context, host *role.Host) error {
	kind := func(err error) string {
		switch {
		case err == nil:
			return ""
		case errors.Is(err, fs.ErrPermission) && status.Code(err) == codes.PermissionDenied:
			return "not granted"
		case errors.Is(err, role.ErrOtherMachineID) && status.Code(err) == codes.FailedPrecondition:
			return "other ID"
		}
		return err.Error()
	}
	for n := range 2 {
		changed, inPlace, err := host.SetHostname(ctx, "new")
		host.SetValue(fmt.Sprint("hostname ", n), fmt.Sprint(changed, inPlace, kind(err)))
		changed, inPlace, err = host.SetMachineID(ctx, "0123456789abcdef0123456789abcdef")
		host.SetValue(fmt.Sprint("machine-id ", n), fmt.Sprint(changed, inPlace, kind(err)))
	}
	host.SetValue("grants", fmt.Sprint(host.Grants()))
	return wait(ctx, host)
}

func TestMachine(t *testing.T) {
	const grants = "[{set-hostname map[path:/etc/hostname]} {set-machine-id map[path:/etc/machine-id]}]"
	for _, test := range []struct {
		name                string
		prepare             func(*roletest.Host)
		want                map[string]string
		hostname, machineID string
	}{
		{
			"not granted",
			func(*roletest.Host) {},
			map[string]string{"hostname 0": "false falsenot granted", "machine-id 0": "false falsenot granted", "grants": "[]"}, "", "",
		},
		{
			"granted",
			func(host *roletest.Host) {
				host.GrantHostname("old")
				host.GrantMachineID("")
			},
			map[string]string{"hostname 0": "true false", "hostname 1": "false false", "machine-id 0": "true false", "machine-id 1": "false false", "grants": grants},
			"new", "0123456789abcdef0123456789abcdef",
		},
		{
			"another ID",
			func(host *roletest.Host) {
				host.GrantHostname("new")
				host.GrantMachineID("f")
			},
			map[string]string{"hostname 0": "false false", "machine-id 0": "false falseother ID", "grants": grants}, "new", "f",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			host := roletest.NewHost(t)
			test.prepare(host)
			now := start(t, host, "probe", `{"do": "machine"}`).AwaitReady()
			for value, want := range test.want {
				if got := now.GetValues()[value]; got != want {
					t.Errorf("%s: %q, want %q", value, got, want)
				}
			}
			if host.Hostname() != test.hostname || host.MachineID() != test.machineID {
				t.Errorf("the machine is %q %q", host.Hostname(), host.MachineID())
			}
		})
	}
}
