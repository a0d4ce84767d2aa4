package role_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// all are the modules that a role brings into an executable: grpc and protobuf with what they need, and go-plugin, whose handshake it makes, with what that needs. Every one more is one that each
// author has to look at, keep up to date and answer for: it is not added by the way.
var all = []string{
	"github.com/Masterminds/semver/v3", // the manifest's version
	"github.com/fatih/color",           // hclog
	"github.com/golang/protobuf",       // go-plugin
	"github.com/hashicorp/go-hclog",
	"github.com/hashicorp/go-plugin",
	"github.com/hashicorp/yamux",    // go-plugin
	"github.com/mattn/go-colorable", // hclog
	"github.com/mattn/go-isatty",    // hclog
	"github.com/oklog/run",          // go-plugin
	"github.com/reeveproject/reeve/proto",
	"github.com/reeveproject/reeve/sdk",
	"golang.org/x/net",  // grpc
	"golang.org/x/sys",  // peers of Unix sockets, by the kernel
	"golang.org/x/text", // grpc
	"google.golang.org/genproto/googleapis/rpc",
	"google.golang.org/grpc",
	"google.golang.org/protobuf",
}

// A role pulls in what is listed here, and a test of one nothing more.
func TestModules(t *testing.T) {
	for _, of := range []string{".", "../roletest", "../event"} {
		list := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", of)
		list.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly")
		output, err := list.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, output)
		}
		found := strings.Fields(string(output))
		slices.Sort(found)
		found = slices.Compact(found)
		for _, module := range found {
			if !slices.Contains(all, module) {
				t.Errorf("%s pulls in %s", of, module)
			}
		}
		for _, module := range all {
			if of == "." && !slices.Contains(found, module) {
				t.Errorf("%s is not pulled in any more: take it from the list", module)
			}
		}
	}
}
