package nodeapi_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/reeveproject/reeve/core/inorder"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// A role can make its log as large as its file system takes without writing anything. Who reads such a log must not keep the core from stopping, nor
// keep it at work when nobody waits for it any more.
func TestALogWithoutAnEndStopsNobody(t *testing.T) {
	const endless = 1 << 40
	for name, test := range inorder.Of(map[string]struct {
		file    string
		request *nodev1.ReadLogRequest
	}{
		"all of it":              {"role.log", &nodev1.ReadLogRequest{Role: "role"}},
		"its last line":          {"role.log", &nodev1.ReadLogRequest{Role: "role", Tail: 1}},
		"followed":               {"role.log", &nodev1.ReadLogRequest{Role: "role", Follow: true}},
		"the earlier one":        {"role.log.1", &nodev1.ReadLogRequest{Role: "role"}},
		"the earlier one's last": {"role.log.1", &nodev1.ReadLogRequest{Role: "role", Tail: 1, Follow: true}},
	}) {
		t.Run(name, func(t *testing.T) {
			a := serve(t)
			path := filepath.Join(a.dir, test.file)
			a.writeLog("role", "")
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(path, endless); err != nil {
				t.Skipf("the file system takes no such file: %v", err)
			}
			client := a.client()
			if _, err := client.ReadLog(a.context(), test.request); err != nil {
				t.Fatal(err)
			}
			// On the same connection: the server has begun with the call before.
			if _, err := client.GetStatus(a.context(), &nodev1.GetStatusRequest{}); err != nil {
				t.Fatal(err)
			}
			a.stop()
		})
	}
}
