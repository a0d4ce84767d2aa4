package setup

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"
	"sigs.k8s.io/yaml"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/proto/plainfile"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/proto/remit"
)

// The built-in plugins, each of which offers one role of its name.
const (
	Consensus = "consensus"
	Curator   = "curator"
	Hostsfile = "hostsfile"
)

// GenesisFile is the name of the genesis catalog in the directory of the built-in plugins: the digests, manifests and grants that they were built with.
const GenesisFile = "genesis.json"

// Node is a node that is to make a cluster of its own, or with TicketFile to register with one that there is.
type Node struct {
	// System, Data and Run are its directories, absolute.
	System, Data, Run string
	// Plugins is the directory with the executables of the built-in plugins.
	Plugins string
	// Owner is the owner's public key, of a cluster that is made.
	Owner ed25519.PublicKey
	// TicketFile holds the ticket with which the node registers; empty: it makes a cluster.
	TicketFile string
	// Asks are the roles that a node asks for which registers, besides that of HostsFile.
	Asks []string
	// Labels are those that it asks for.
	Labels map[string]string
	// Addresses are those of the node; none: those of its interfaces, followed as they change.
	Addresses []string
	// Interfaces are those of which the addresses are, where none are named: names and networks; none: those of default routes.
	Interfaces []string
	// APIListen is host:port of the node's own API; empty: on the local socket only.
	APIListen string
	// CuratorListen is host:port of the cluster API.
	CuratorListen string
	// PeerListen is host:port on which the store's member of a node that registers listens to the others; empty: the role's own choice.
	PeerListen string
	// MetricsListen is host:port of the metrics over plain HTTP; empty: nowhere.
	MetricsListen string
	// DebugRoles lets roles be debugged: for development.
	DebugRoles bool
	// LogFile is the file of reeved's log; empty: its standard error.
	LogFile string
	// HostsFile is the file that the role hostsfile manages; empty: the node does not get that role.
	HostsFile string
	// Volume is where its data lives; nil: a plain one, which is not encrypted.
	Volume *nodev1.Volume
	// Seal is what protects its secrets while it is off; nil: the permissions of a file.
	Seal *nodev1.Seal
	// RecoveryRecipient is the public half of the owner's recovery key, an age recipient; needed for a volume that is encrypted.
	RecoveryRecipient string
}

// Parameters returns those of the node's reeved. The fault is NotFound if a built-in plugin is missing.
func (n Node) Parameters() (*nodev1.Parameters, error) {
	plugins, err := n.plugins()
	if err != nil {
		return nil, err
	}
	genesis, err := n.genesis()
	if err != nil {
		return nil, err
	}
	volume := n.Volume
	if volume == nil {
		volume = &nodev1.Volume{Kind: &nodev1.Volume_Plain{Plain: &nodev1.PlainVolume{}}}
	}
	if err := checkRecovery(volume, n.RecoveryRecipient); err != nil {
		return nil, err
	}
	parameters := &nodev1.Parameters{
		Version:     "reeve.node.v1",
		Directories: &nodev1.Directories{System: n.System, Data: n.Data, Run: n.Run},
		Network:     &nodev1.Network{Addresses: n.Addresses, Interfaces: n.Interfaces, ApiListen: n.APIListen},
		Volume:      volume,
		Seal:        n.Seal,
		Plugins:     plugins,
		Genesis:     genesis,
		DebugRoles:  n.DebugRoles,
	}
	n.cluster(parameters)
	if n.MetricsListen != "" {
		parameters.Metrics = &nodev1.Metrics{Listen: n.MetricsListen}
	}
	if n.LogFile != "" {
		parameters.Log = &nodev1.Log{File: n.LogFile}
	}
	return parameters, nil
}

// cluster says how the node comes to its cluster.
func (n Node) cluster(parameters *nodev1.Parameters) {
	if n.TicketFile != "" {
		parameters.Cluster = &nodev1.Parameters_Register{Register: &nodev1.Register{
			From: &nodev1.Register_TicketFile{TicketFile: n.TicketFile}, Roles: n.asked(), Labels: n.Labels, RecoveryRecipient: n.RecoveryRecipient,
		}}
		return
	}
	roles := []*nodev1.BootstrapRole{{Role: Consensus}, {Role: Curator, Configuration: document("listen", n.CuratorListen)}}
	if n.HostsFile != "" {
		roles = append(roles, &nodev1.BootstrapRole{Role: Hostsfile}) // keeps the file that it is granted
	}
	parameters.Cluster = &nodev1.Parameters_Bootstrap{Bootstrap: &nodev1.Bootstrap{
		OwnerPublicKey: n.Owner, Roles: roles, RecoveryRecipient: n.RecoveryRecipient,
	}}
}

// asked are the roles that a node asks for, with what only the node knows of their configuration.
func (n Node) asked() []*nodev1.BootstrapRole {
	var roles []*nodev1.BootstrapRole
	names := n.Asks
	if n.HostsFile != "" && !slices.Contains(names, Hostsfile) {
		names = append(slices.Clone(names), Hostsfile)
	}
	for _, name := range names {
		role := &nodev1.BootstrapRole{Role: name}
		switch {
		case name == Curator && n.CuratorListen != "":
			role.Configuration = document("listen", n.CuratorListen)
		case name == Consensus && n.PeerListen != "":
			role.Configuration = document("peerListen", n.PeerListen)
		case name == Hostsfile && n.HostsFile != "":
			// What is granted is the cluster's to say, and may be several files.
			role.Configuration = document("path", n.HostsFile)
		}
		roles = append(roles, role)
	}
	return roles
}

// genesis is the genesis catalog that was made with the built-in plugins and lies beside them; empty: there is none, and each of them is asked what it is.
func (n Node) genesis() (string, error) {
	file, err := filepath.Abs(filepath.Join(n.Plugins, GenesisFile))
	if err != nil {
		return "", err
	}
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err == nil && !info.Mode().IsRegular():
		err = errors.New("it is not a file")
	}
	if err != nil {
		return "", fault.Wrap(fault.Failed, err, "cannot use the genesis catalog "+file, "Run `make build`, or say with --plugins where the built-in plugins are.")
	}
	return file, nil
}

// plugins are the built-in ones. What they ask for they are granted; of what is given here a grant takes the place of those of its name.
func (n Node) plugins() ([]*nodev1.BuiltinPlugin, error) {
	var plugins []*nodev1.BuiltinPlugin
	for _, name := range []string{Consensus, Curator, Hostsfile} {
		file, err := filepath.Abs(filepath.Join(n.Plugins, name))
		if err != nil {
			return nil, err
		}
		if err := checkExecutable(file); err != nil {
			return nil, err
		}
		plugin := &nodev1.BuiltinPlugin{Path: file}
		if name == Hostsfile && n.HostsFile != "" && n.TicketFile == "" {
			// Exactly this: a node in a directory of its own has no business with the name of the machine.
			plugin.Grants = []*nodev1.BuiltinGrants{{
				Role: Hostsfile,
				Grants: []*rolev1.Grant{
					{Name: remit.ReplaceFile, Parameters: map[string]string{"path": n.HostsFile}},
					{Name: remit.Connect, Parameters: map[string]string{"port": "53"}},
				},
			}}
		}
		plugins = append(plugins, plugin)
	}
	return plugins, nil
}

// document is the JSON document with one field.
func document(key, value string) string {
	encoded, err := json.Marshal(map[string]string{key: value})
	if err != nil {
		panic(err) // A map of strings is always a document.
	}
	return string(encoded)
}

func checkExecutable(file string) error {
	info, err := os.Stat(file)
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
		return fault.New(fault.NotFound, "there is no executable "+file, "Run `make build`, or say with --plugins where the built-in plugins are.")
	}
	return nil
}

// Encode returns parameters as the YAML document that reeved reads. head is a comment that it begins with: whole lines, each with its "#".
func Encode(head string, parameters *nodev1.Parameters) ([]byte, error) {
	encoded, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(parameters)
	if err != nil {
		return nil, err
	}
	text, err := yaml.JSONToYAML(encoded)
	if err != nil {
		return nil, err
	}
	return append([]byte(head), text...), nil
}

// ReadParameters reads parameters that were written by Encode, or by people.
func ReadParameters(file string) (*nodev1.Parameters, error) {
	opened, err := plainfile.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = opened.Close() }() // it was only read
	text, err := io.ReadAll(opened)
	if err != nil {
		return nil, err
	}
	encoded, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	parameters := &nodev1.Parameters{}
	// What is not known here may be known to reeved, who checks it.
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(encoded, parameters); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return parameters, nil
}
