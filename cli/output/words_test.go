package output_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/reeveproject/reeve/cli/output"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// TestWords holds the spelling that scripts decide on.
func TestWords(t *testing.T) {
	states := func(enum protoreflect.Enum) string {
		var words []string
		for number := range enum.Descriptor().Values().Len() {
			words = append(words, output.State(enum.Type().New(protoreflect.EnumNumber(number))))
		}
		return strings.Join(words, " ")
	}
	tests := []struct {
		name string
		enum protoreflect.Enum
		want string
	}{
		{"membership", hostv1.MembershipState(0), " Unknown Bootstrapping Foreign Trusted Home Split Disowning"},
		{"instance", hostv1.InstanceState(0), " Blocked Starting Ready Degraded Stopping Stopped Backoff Failed"},
		{"node", clusterv1.NodeState(0), " New Standby Up Decommissioning Decommissioned"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := states(test.enum); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
	for isolation, want := range map[clusterv1.Isolation]string{0: "", 1: "own-uid", 2: "shared-uid", 99: ""} {
		if got := output.Kind(isolation); got != want {
			t.Errorf("isolation %d is %q, want %q", isolation, got, want)
		}
	}
}

func TestTableCannotBeBroken(t *testing.T) {
	var out strings.Builder
	status := output.Status{Roles: []output.Role{{Role: "x", State: "Failed", Reason: "a\nb\tc\x1b[2Jd\u009be"}}}
	if err := output.Print(&out, output.Table, status, time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "a b c [2Jd e\n") {
		t.Errorf("the table is %q", out.String())
	}
}

func TestAges(t *testing.T) {
	now := time.Unix(10_000_000, 0)
	for ago, want := range map[time.Duration]string{
		-time.Second: "0s", 1500 * time.Millisecond: "1s", 9 * time.Minute: "9m0s", 61 * time.Minute: "1h1m", 49 * time.Hour: "2d", 25 * time.Hour: "25h0m",
	} {
		at := now.Add(-ago)
		var out strings.Builder
		status := output.Status{Roles: []output.Role{{Role: "x", Since: &at}}}
		if err := output.Print(&out, output.Table, status, now); err != nil {
			t.Fatal(err)
		}
		if fields := strings.Fields(out.String()[strings.LastIndex(out.String(), "\nx"):]); fields[4] != want {
			t.Errorf("%s ago is %q, want %q", ago, fields[4], want)
		}
	}
}
