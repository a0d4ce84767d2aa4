//go:build soak

package vm

import (
	"crypto/ed25519"
	"crypto/rand"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/reeveproject/reeve/e2e/vm/internal/machine"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// Where a node of these tests is in its guest.
const (
	systemDirectory = machine.StateDirectory + "/system"
	dataDirectory   = machine.StateDirectory + "/data"
	runDirectory    = "/run/reeve"
	hostsFile       = machine.StateDirectory + "/hosts"
)

// roles are those of the nodes of these tests.
var roles = []string{"consensus", "curator", "hostsfile"}

// newParameters are those of a first node with a plain volume. edit changes them.
func newParameters(t *testing.T, edit func(*nodev1.Parameters)) []byte {
	t.Helper()
	owner, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	plugin := func(name string) *nodev1.BuiltinPlugin {
		return &nodev1.BuiltinPlugin{Path: machine.Programs + "/plugins/" + name}
	}
	hostsfile := plugin("hostsfile")
	hostsfile.Grants = []*nodev1.BuiltinGrants{{
		Role: "hostsfile",
		Grants: []*rolev1.Grant{
			{Name: "replace-file", Parameters: map[string]string{"path": hostsFile}}, {Name: "connect", Parameters: map[string]string{"port": "53"}},
		},
	}}
	parameters := &nodev1.Parameters{
		Version:     "reeve.node.v1",
		Directories: &nodev1.Directories{System: systemDirectory, Data: dataDirectory, Run: runDirectory},
		Network:     &nodev1.Network{Addresses: []string{"127.0.0.1"}, ApiListen: "127.0.0.1:7444"},
		Volume:      &nodev1.Volume{Kind: &nodev1.Volume_Plain{Plain: &nodev1.PlainVolume{}}},
		Plugins:     []*nodev1.BuiltinPlugin{plugin("consensus"), plugin("curator"), hostsfile},
		Genesis:     machine.Programs + "/plugins/genesis.json",
		Cluster: &nodev1.Parameters_Bootstrap{Bootstrap: &nodev1.Bootstrap{
			OwnerPublicKey: owner,
			Roles: []*nodev1.BootstrapRole{
				{Role: "consensus"}, {Role: "curator", Configuration: `{"listen":"127.0.0.1:7443"}`}, {Role: "hostsfile", Configuration: `{"path":"` + hostsFile + `"}`},
			},
		}},
	}
	edit(parameters)
	document, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(parameters)
	if err != nil {
		t.Fatal(err)
	}
	return document
}
