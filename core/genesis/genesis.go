package genesis

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/reeveproject/reeve/core/plugin/store"
	"github.com/reeveproject/reeve/proto/limits"
	"github.com/reeveproject/reeve/proto/plainfile"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/proto/remit"
)

// Version is the format version of the file.
const Version = "reeve.node.v1"

// FileName is the file's name in the directory of the built-in plugins.
const FileName = "genesis.json"

// maxSize is the largest file in bytes: 64 plugins with the largest allowed manifests.
const maxSize = 64 << 20

// Load reads and checks a genesis catalog. The error lists every problem.
func Load(path string) (*nodev1.Genesis, error) {
	file, err := plainfile.Open(path)
	if err != nil {
		return nil, fmt.Errorf("genesis: %w: build it with `reeved genesis`, or remove `genesis` from the parameters", err)
	}
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(io.LimitReader(file, maxSize+1))
	if err != nil {
		return nil, fmt.Errorf("genesis: %w", err)
	}
	parsed, err := Parse(content)
	if err != nil {
		return nil, fmt.Errorf("genesis: cannot use %s; build it again with `reeved genesis`: %w", path, err)
	}
	return parsed, nil
}

// Parse parses a genesis catalog from JSON and checks it.
func Parse(content []byte) (*nodev1.Genesis, error) {
	if len(content) > maxSize {
		return nil, fmt.Errorf("it is larger than %d MiB", maxSize>>20)
	}
	parsed := &nodev1.Genesis{}
	if err := protojson.Unmarshal(content, parsed); err != nil {
		return nil, err
	}
	if parsed.GetVersion() != Version {
		return nil, fmt.Errorf("it has the version %q, and this reeved reads %q", parsed.GetVersion(), Version)
	}
	return parsed, check(parsed)
}

func check(g *nodev1.Genesis) error {
	var problems []error
	names := make(map[string]bool)
	for i, record := range g.GetPlugins() {
		problem := func(format string, arguments ...any) {
			problems = append(problems, fmt.Errorf("plugins[%d]: %s", i, fmt.Sprintf(format, arguments...)))
		}
		manifest := record.GetManifest()
		if err := store.CheckManifest(manifest); err != nil {
			problem("%v", err)
			continue
		}
		if record.GetName() != manifest.GetName() || record.GetVersion() != manifest.GetVersion() {
			problem("its name is %s %s, but its manifest says %s %s", record.GetName(), record.GetVersion(), manifest.GetName(), manifest.GetVersion())
		}
		if names[record.GetName()] {
			problem("the plugin %s is there twice", record.GetName())
		}
		names[record.GetName()] = true
		if len(record.GetDigests()) == 0 {
			problem("the plugin %s has no digest", record.GetName())
		}
		for platform, digest := range record.GetDigests() {
			if !limits.DigestOK(digest) {
				problem("the digest for %s is not sha256: and 64 hex digits", platform)
			}
		}
		for _, grants := range record.GetGrants() {
			if _, err := remit.Of(grants.GetGrants()); err != nil {
				problem("role %s: %v", grants.GetRole(), err)
			}
		}
	}
	return errors.Join(append(problems, checkReports(g)...)...)
}

// Record returns the entry of an executable by its digest on this platform; nil if there is none.
func Record(g *nodev1.Genesis, digest string) *clusterv1.PluginRecord {
	for _, record := range g.GetPlugins() {
		if record.GetDigests()[store.Platform] == digest {
			return record
		}
	}
	return nil
}

// Names lists the catalog's plugins for this platform, for people.
func Names(g *nodev1.Genesis) string {
	var names []string
	for _, record := range g.GetPlugins() {
		if record.GetDigests()[store.Platform] != "" {
			names = append(names, record.GetName()+" "+record.GetVersion())
		}
	}
	return strings.Join(names, ", ")
}
