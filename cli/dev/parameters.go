package dev

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/encoding/protojson"
	"sigs.k8s.io/yaml"

	"github.com/reeveproject/reeve/cli/fault"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// Plan is what a dev directory is made with.
type Plan struct {
	// Plugins is the directory with the executables of the built-in plugins.
	Plugins string
	// HostsFile is the file that the role hostsfile manages; empty: D/hosts.
	HostsFile string
}

// The built-in plugins, each of which offers one role of its name.
const (
	consensus = "consensus"
	curator   = "curator"
	hostsfile = "hostsfile"
)

// parameters makes those of a node whose files are in state.
func (p Plan) parameters(state, run string, owner ed25519.PublicKey) (*nodev1.Parameters, error) {
	hosts := filepath.Join(state, "hosts")
	if p.HostsFile != "" {
		var err error
		if hosts, err = filepath.Abs(p.HostsFile); err != nil {
			return nil, err
		}
	}
	configure := func(key, value string) string {
		document, err := json.Marshal(map[string]string{key: value})
		if err != nil {
			panic(err) // A map of strings is always a document.
		}
		return string(document)
	}
	var plugins []*nodev1.BuiltinPlugin
	for _, name := range []string{consensus, curator, hostsfile} {
		file, err := filepath.Abs(filepath.Join(p.Plugins, name))
		if err != nil {
			return nil, err
		}
		if err := checkExecutable(file); err != nil {
			return nil, err
		}
		plugins = append(plugins, &nodev1.BuiltinPlugin{Path: file})
	}
	plugins[2].Grants = []*nodev1.BuiltinGrants{{
		Role:   hostsfile,
		Grants: []*rolev1.Grant{{Name: "replace-file", Parameters: map[string]string{"path": hosts}}},
	}}
	return &nodev1.Parameters{
		Version: "reeve.node.v1",
		Directories: &nodev1.Directories{
			System: filepath.Join(state, "system"),
			Data:   filepath.Join(state, "data"),
			Run:    run,
		},
		// Loopback alone: nothing of a dev node is to be reached from elsewhere.
		Network: &nodev1.Network{Addresses: []string{"127.0.0.1"}, ApiListen: "127.0.0.1:0"},
		Volume:  &nodev1.Volume{Kind: &nodev1.Volume_Plain{Plain: &nodev1.PlainVolume{}}},
		Plugins: plugins,
		Cluster: &nodev1.Parameters_Bootstrap{Bootstrap: &nodev1.Bootstrap{
			OwnerPublicKey: owner,
			Roles: []*nodev1.BootstrapRole{
				{Role: consensus},
				{Role: curator, Configuration: configure("listen", "127.0.0.1:0")},
				{Role: hostsfile}, // keeps the file that it is granted
			},
		}},
	}, nil
}

func checkExecutable(file string) error {
	info, err := os.Stat(file)
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
		return fault.New(fault.NotFound, "there is no executable "+file, "Run `make build`, or say with --plugins where the built-in plugins are.")
	}
	return nil
}

// fits says whether parameters that are there already are those of the plan, as far as it says something: they are never changed, and a choice
// that has no effect must not look as if it had.
func (p Plan) fits(parameters *nodev1.Parameters) error {
	if p.HostsFile == "" {
		return nil
	}
	asked, err := filepath.Abs(p.HostsFile)
	if err != nil {
		return err
	}
	for _, plugin := range parameters.GetPlugins() {
		for _, role := range plugin.GetGrants() {
			for _, grant := range role.GetGrants() {
				if role.GetRole() == hostsfile && grant.GetParameters()["path"] == asked {
					return nil
				}
			}
		}
	}
	return fault.New(fault.Refused, "the cluster was made with another hosts file than "+asked,
		"Leave --hosts-file out, or make another cluster with --dir.")
}

const parametersHead = `# The parameters of this node's reeved. ` + "`reeve dev up`" + ` wrote them once and only reads them from then on.
# The message reeve.node.v1.Parameters says what may be in here.
`

func writeParameters(file string, parameters *nodev1.Parameters) error {
	document, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(parameters)
	if err != nil {
		return err
	}
	text, err := yaml.JSONToYAML(document)
	if err != nil {
		return err
	}
	return createOnly(file, append([]byte(parametersHead), text...), 0o644)
}

func readParameters(file string) (*nodev1.Parameters, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	document, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	parameters := &nodev1.Parameters{}
	// What is not known here may be known to reeved, who checks it.
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(document, parameters); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return parameters, nil
}
