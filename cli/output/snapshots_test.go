package output_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/cli/output"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// TestStatusOfSnapshots holds that a node's status says how old the newest good scheduled snapshot is, or that there is none, as its curator publishes it, and no other role.
func TestStatusOfSnapshots(t *testing.T) {
	const none = "null"
	newest := func(values map[string]string) map[string]string {
		values["snapshots/newest/asked"], values["snapshots/newest/revision"] = "2026-01-02T00:06:05Z", "4711"
		return values
	}
	for name, test := range map[string]struct {
		endpoint   string
		values     map[string]string
		text, json string
	}{
		"no schedule":   {"reeve.cluster.v1", map[string]string{}, "", none},
		"no good one":   {"reeve.cluster.v1", map[string]string{"snapshots/interval": "6h0m0s"}, "there is no good one yet; one is due every 6h0m0s", `{"interval_seconds":21600,"newest_time":null,"newest_revision":0}`},
		"a good one":    {"reeve.cluster.v1", newest(map[string]string{"snapshots/interval": "6h0m0s"}), "the newest good one was taken 3h0m ago, at revision 4711; one is due every 6h0m0s", `{"interval_seconds":21600,"newest_time":"2026-01-02T00:06:05Z","newest_revision":4711}`},
		"another role":  {"http", newest(map[string]string{"snapshots/interval": "6h0m0s"}), "", none},
		"no real value": {"reeve.cluster.v1", newest(map[string]string{"snapshots/interval": "often"}), "", none},
	} {
		t.Run(name, func(t *testing.T) {
			document := output.NewStatus(&nodev1.Status{Node: &clusterv1.NodeStatus{Instances: []*clusterv1.InstanceStatus{
				{Role: "other"}, {Role: "curator", Endpoints: []*rolev1.Endpoint{{Name: test.endpoint, Address: "192.0.2.1:7443"}}, Values: test.values},
			}}})
			if got, err := json.Marshal(document.Snapshots); err != nil || string(got) != test.json {
				t.Errorf("%s, %v, want %s", got, err, test.json)
			}
			var table bytes.Buffer
			if err := output.Print(&table, output.Table, document, sampleNow); err != nil {
				t.Fatal(err)
			}
			line := ""
			for text := range strings.Lines(table.String()) {
				if rest, found := strings.CutPrefix(text, "Snapshots"); found {
					line = strings.TrimSpace(rest)
				}
			}
			if line != test.text {
				t.Errorf("%q, want %q", line, test.text)
			}
		})
	}
}
