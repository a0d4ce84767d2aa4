package params_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/core/inorder"
	"github.com/reeveproject/reeve/core/params"
)

const good = `
version: reeve.node.v1
directories: {system: /d/system, data: /d/data, run: /run/reeve/d}
network: {addresses: [127.0.0.1], api_listen: "127.0.0.1:0"}
volume: {plain: {}}
plugins:
  - path: /bin/consensus
  - path: /bin/hostsfile
    grants: [{role: hostsfile, grants: [{name: replace-file, parameters: {path: /etc/hosts}}]}]
bootstrap:
  owner_public_key: AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=
  roles:
    - role: consensus
    - {role: curator, configuration: '{"listen":"127.0.0.1:0"}'}
`

func TestParse(t *testing.T) {
	parameters, err := params.Parse("p.yaml", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	if got := parameters.GetBootstrap().GetRoles()[1].GetConfiguration(); got != `{"listen":"127.0.0.1:0"}` {
		t.Errorf("configuration of the curator: %q", got)
	}
	document, err := protojson.Marshal(parameters)
	if err != nil {
		t.Fatal(err)
	}
	fromJSON, err := params.Parse("p.json", document)
	if err != nil {
		t.Fatalf("the same parameters as JSON: %v", err)
	}
	if !proto.Equal(parameters, fromJSON) {
		t.Errorf("YAML and JSON differ:\n%v\n%v", parameters, fromJSON)
	}
}

func TestProblems(t *testing.T) {
	tests := map[string]struct {
		document string
		want     []string
	}{
		"empty":        {" \n", []string{"it is empty"}},
		"not a map":    {"- 1\n", []string{"p.yaml:1:1"}},
		"not YAML":     {"a: [", []string{"yaml"}},
		"unknown name": {strings.Replace(good, "volume:", "volumes:", 1), []string{"volumes"}},
		"unknown field inside": {
			strings.Replace(good, "api_listen", "api_lisen", 1), []string{"api_lisen"},
		},
		"everything at once": {
			`
version: reeve.node.v9
directories: {system: system, data: /d/data, run: /d/data/` + strings.Repeat("r", 60) + `}
network: {addresses: [somewhere, 127.0.0.1, 127.0.0.1], api_listen: nowhere, interfaces: [eth0, 10.0.0.0/33, "no name"]}
bootstrap: {owner_public_key: AAEC, roles: [{role: Consensus}, {role: Consensus, configuration: "{"}, {role: ends-}]}
`,
			[]string{
				"version:", "directories.system:", "directories.run:", "network.addresses[0]:", "network.addresses:", "network.api_listen:", "volume:",
				"network.interfaces[1]:", "network.interfaces[2]:",
				"bootstrap.owner_public_key:", "bootstrap.roles[0].role:", "bootstrap.roles:",
				"directories.run: lies within directories.data", "bootstrap.roles[1].configuration: is not a JSON document", "bootstrap.roles[2].role:",
			},
		},
		"no cluster": {
			"version: reeve.node.v1\ndirectories: {system: /a, data: /b, run: /c}\nvolume: {plain: {}}\n", []string{"cluster:"},
		},
		"no volume kind": {strings.Replace(good, "{plain: {}}", "{}", 1), []string{"volume.kind:"}},
		"only comments":  {"# nothing\n", []string{"empty except for comments"}},
		"two documents":  {good + "---\n" + good, []string{"more than one YAML document"}},
		"directories within each other": {
			strings.Replace(good, "data: /d/data", "data: /d/system/data", 1), []string{"directories.data: lies within directories.system"},
		},
		"the same directory twice": {
			strings.Replace(good, "data: /d/data", "data: /d/system/", 1), []string{"directories.data: is the same as directories.system"},
		},
	}
	for name, test := range inorder.Of(tests) {
		t.Run(name, func(t *testing.T) {
			_, err := params.Parse("p.yaml", []byte(test.document))
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not speak of %q:\n%v", want, err)
				}
			}
		})
	}
}

func TestNetwork(t *testing.T) {
	for _, network := range []string{
		`{api_listen: ":7444"}`, `{api_listen: "[::]:7444"}`, `{api_listen: "0.0.0.0:7444"}`, `{api_listen: "node.example:0"}`,
		`{interfaces: [eth0, enp0s31f6.100, 10.0.0.0/8, "2001:db8::/32"]}`, `{peers: [192.0.2.20, "2001:db8::20", b.example]}`,
	} {
		document := strings.Replace(good, `{addresses: [127.0.0.1], api_listen: "127.0.0.1:0"}`, network, 1)
		if _, err := params.Parse("p.yaml", []byte(document)); err != nil || !strings.Contains(document, network) {
			t.Errorf("%s: %v", network, err)
		}
	}
}
