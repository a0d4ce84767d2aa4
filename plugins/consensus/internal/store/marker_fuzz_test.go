package store

import (
	"encoding/json"
	"testing"
)

func FuzzParseMarker(f *testing.F) {
	for _, seed := range []string{
		"", "{}", "null", `{"version":1}`, `{"version":2,"x":1}`,
		`{"version":1,"clusterId":"c","nodeId":"n","phase":"forming"}`,
		`{"version":1,"clusterId":"c","nodeId":"n","phase":"complete","memberId":"8e9e05c52164694d"}`,
		`{"version":1,"clusterId":"c","nodeId":"n","phase":"complete"}`,
		`{"version":1,"clusterId":"c","nodeId":"n","phase":"joining","memberId":"8e9e05c52164694d"}`,
		`{"version":1,"clusterId":"c","nodeId":"n","phase":"removed","memberId":"8e9e05c52164694d"}`,
		`{"version":1,"clusterId":"c","nodeId":"n","phase":"replaced","memberId":"8e9e05c52164694d"}`,
		`{"version":1,"clusterId":"c","nodeId":"n","phase":"joining","memberId":"ab","former":"8e9e05c52164694d"}`,
		`{"version":1,"clusterId":"c","nodeId":"n","phase":"complete","memberId":"ab","former":"8e9e05c52164694d"}`,
		`{"version":1,"clusterId":"c","nodeId":"n","phase":"complete","memberId":"ab","generation":1,"generationId":"00ff"}`,
		`{"version":1,"clusterId":"c","nodeId":"n","phase":"complete","memberId":"ab","generation":1,"generationId":"0"}`,
		`{"version":1,"clusterId":"c","nodeId":"n","phase":"forming"} {}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		m, err := parseMarker(content)
		if err != nil {
			return
		}
		if m.Version != markerVersion || m.ClusterID == "" || m.NodeID == "" || (m.Phase != forming) != (m.MemberID != "") {
			t.Fatalf("accepted %q as %+v", content, m)
		}
		written, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := parseMarker(written); err != nil || *again != *m {
			t.Fatalf("%+v was written as %s and read as %+v, %v", m, written, again, err)
		}
	})
}
