package role_test

import (
	"fmt"
	"testing"

	"github.com/reeveproject/reeve/sdk/role"
)

// A role that serves HTTP on a configured port, reads certificates of the machine, and wants more memory than others.
func ExampleGrantListen() {
	plugin := role.Plugin{Name: "web", Version: "1.0.0", Roles: []role.Role{{
		Name: "web",
		Grants: []role.Grant{
			role.GrantListen(role.AnyPort),
			role.GrantReadPath("/etc/web"),
			role.GrantLimit(map[string]string{"memory": "2Gi"}),
		},
		GivesUp: []string{role.GiveUpProcesses},
		Run:     wait,
	}}}
	manifest, err := plugin.Manifest()
	fmt.Println(len(manifest.GetRoles()[0].GetGrants()), manifest.GetRoles()[0].GetGivesUp(), err)
	// Output: 3 [processes] <nil>
}

// All that can be asked for can be granted.
func TestGrantsAreKnown(t *testing.T) {
	plugin := role.Plugin{Name: "p", Version: "1.0.0", Roles: []role.Role{{Name: "r", Run: wait, Grants: []role.Grant{
		role.GrantListen("7443"), role.GrantConnect("53"), role.GrantReadPath("/a"), role.GrantWritePath("/b"), role.GrantExecutePath("/c"),
		role.GrantCapability("net-bind-service"), role.GrantLimit(map[string]string{"processes": "9"}), role.GrantPrivileged(),
	}}}}
	if _, err := plugin.Manifest(); err != nil {
		t.Error(err)
	}
}
