package output_test

import (
	"io"
	"strings"
	"testing"
	"time"
	"unicode"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"
	"sigs.k8s.io/yaml"

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
	status := output.Status{Roles: []*clusterv1.InstanceStatus{{Role: "x", State: hostv1.InstanceState_INSTANCE_STATE_FAILED, Reason: "a\nb\tc\x1b[2Jd\u009be"}}}
	if err := output.Print(&out, output.Table, status, time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "a b c [2Jd e\n") {
		t.Errorf("the table is %q", out.String())
	}
}

// TestDocumentsHaveNoControls holds that what a role says reaches no terminal as a control sequence in JSON or YAML either, and is the same for programs.
func TestDocumentsHaveNoControls(t *testing.T) {
	const said = "a\x1b[2Jb\u009b31mc\u0085d\u007fe\u00a0ä"
	print := map[string]func(io.Writer, output.Format, output.Document, time.Time) error{"Print": output.Print, "PrintNext": output.PrintNext}
	for name, print := range print {
		for _, format := range []output.Format{output.JSON, output.YAML} {
			var out strings.Builder
			if err := print(&out, format, output.LogLine{Line: said}, time.Unix(0, 0)); err != nil {
				t.Fatal(err)
			}
			if i := strings.IndexFunc(out.String(), func(r rune) bool { return r != '\n' && unicode.IsControl(r) }); i >= 0 {
				t.Errorf("%s writes %q as %s", name, out.String(), format)
			}
			var read output.LogLine
			if err := yaml.Unmarshal([]byte(out.String()), &read); err != nil || read.Line != said {
				t.Errorf("%s as %s: %q is read as %q, %v", name, format, out.String(), read.Line, err)
			}
		}
	}
}

func TestCleanLines(t *testing.T) {
	if got, want := output.CleanLines("a\x1b[2J\n\u009bb\r\n"), "a [2J\n b \n"; got != want {
		t.Errorf("it is %q, want %q", got, want)
	}
}

func TestAges(t *testing.T) {
	now := time.Unix(10_000_000, 0)
	for ago, want := range map[time.Duration]string{
		-time.Second: "0s", 1500 * time.Millisecond: "1s", 9 * time.Minute: "9m0s", 61 * time.Minute: "1h1m", 49 * time.Hour: "2d", 25 * time.Hour: "25h0m",
	} {
		var out strings.Builder
		status := output.Status{Roles: []*clusterv1.InstanceStatus{{Role: "x", Since: timestamppb.New(now.Add(-ago))}}}
		if err := output.Print(&out, output.Table, status, now); err != nil {
			t.Fatal(err)
		}
		if fields := strings.Fields(out.String()[strings.LastIndex(out.String(), "\nx"):]); fields[4] != want {
			t.Errorf("%s ago is %q, want %q", ago, fields[4], want)
		}
	}
}
