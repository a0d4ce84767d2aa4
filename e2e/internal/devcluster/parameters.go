package devcluster

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// DefaultRoles are the roles of a cluster that `reeve dev up` makes.
var DefaultRoles = []string{"consensus", "curator", "hostsfile"}

// WriteParameters makes the dev directory as an operator would who wants other parameters than those of `reeve dev up`, which keeps what is
// there. edit changes what it would have written.
func (c *Cluster) WriteParameters(t testing.TB, edit func(*nodev1.Parameters)) {
	t.Helper()
	if err := os.MkdirAll(c.Directory, 0o711); err != nil {
		t.Fatal(err)
	}
	// As root, the umask may have taken the others' right to pass through.
	if err := os.Chmod(c.Directory, 0o711); err != nil {
		t.Fatal(err)
	}
	owner, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	c.writeFile(t, "owner.key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600)
	c.writeFile(t, "hosts", []byte("127.0.0.1\tlocalhost\n"), 0o644)
	parameters := c.parameters(owner)
	edit(parameters)
	document, err := protojson.Marshal(parameters)
	if err != nil {
		t.Fatal(err)
	}
	c.writeFile(t, "reeved.yaml", document, 0o644)
	if c.user != nil {
		if err := os.Chown(c.Directory, c.user.UID, c.user.GID); err != nil {
			t.Fatal(err)
		}
	}
}

func (c *Cluster) writeFile(t testing.TB, name string, content []byte, mode os.FileMode) {
	t.Helper()
	path := filepath.Join(c.Directory, name)
	if err := os.WriteFile(path, content, mode); err != nil {
		t.Fatal(err)
	}
	if c.user == nil {
		return
	}
	if err := os.Chown(path, c.user.UID, c.user.GID); err != nil {
		t.Fatal(err)
	}
}

// parameters are those that `reeve dev up` writes, with a run directory of the tests' own.
func (c *Cluster) parameters(owner ed25519.PublicKey) *nodev1.Parameters {
	hosts := filepath.Join(c.Directory, "hosts")
	plugin := func(name string) *nodev1.BuiltinPlugin { return &nodev1.BuiltinPlugin{Path: c.Programs.Plugin(name)} }
	hostsfile := plugin("hostsfile")
	hostsfile.Grants = []*nodev1.BuiltinGrants{{
		Role: "hostsfile",
		Grants: []*rolev1.Grant{
			{Name: "replace-file", Parameters: map[string]string{"path": hosts}}, {Name: "connect", Parameters: map[string]string{"port": "53"}},
		},
	}}
	return &nodev1.Parameters{
		Version: "reeve.node.v1",
		Directories: &nodev1.Directories{
			System: filepath.Join(c.Directory, "system"),
			Data:   filepath.Join(c.Directory, "data"),
			Run:    filepath.Join(c.Home, "r"),
		},
		Network: &nodev1.Network{Addresses: []string{"127.0.0.1"}, ApiListen: "127.0.0.1:0"},
		Volume:  &nodev1.Volume{Kind: &nodev1.Volume_Plain{Plain: &nodev1.PlainVolume{}}},
		Plugins: []*nodev1.BuiltinPlugin{plugin("consensus"), plugin("curator"), hostsfile},
		Genesis: c.Programs.Genesis(),
		Cluster: &nodev1.Parameters_Bootstrap{Bootstrap: &nodev1.Bootstrap{
			OwnerPublicKey: owner,
			Roles: []*nodev1.BootstrapRole{
				{Role: "consensus"},
				{Role: "curator", Configuration: `{"listen":"127.0.0.1:0"}`},
				{Role: "hostsfile", Configuration: fmt.Sprintf(`{"path":%q}`, hosts)},
			},
		}},
	}
}
