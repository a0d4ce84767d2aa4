package output_test

import (
	"strings"
	"testing"

	"github.com/reeveproject/reeve/cli/output"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/proto/remit"
)

// TestEveryGrantIsExplained holds that an operator reads words, and not the name of a grant.
func TestEveryGrantIsExplained(t *testing.T) {
	for _, name := range remit.Known() {
		grant := &rolev1.Grant{Name: name, Parameters: map[string]string{"path": "/a/b", "port": "7443", "name": "net-raw"}}
		if name == remit.Limit {
			grant.Parameters = map[string]string{"memory": "64Mi", "processes": "1", "open-files": "1", "cpu-weight": "1", "store-bytes": "1", "store-leases": "1"}
		}
		if text := output.Explain(grant); strings.Contains(text, "=") || strings.HasPrefix(text, name) && !strings.Contains(text, " ") {
			t.Errorf("%s is explained as %q", name, text)
		}
	}
	for _, name := range remit.Grantable() {
		if output.CapabilityMeaning(name) == "" {
			t.Errorf("the capability %s is not explained", name)
		}
	}
	if text := output.Explain(&rolev1.Grant{Name: remit.Privileged}); !strings.HasPrefix(text, "PRIVILEGED: no sandbox at all") {
		t.Errorf("privileged is explained as %q", text)
	}
}
