package catalog

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/core/genesis"
	"github.com/reeveproject/reeve/core/plugin/store"
	"github.com/reeveproject/reeve/core/roles"
	"github.com/reeveproject/reeve/core/seal"
	"github.com/reeveproject/reeve/proto/plainfile"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/proto/remit"
)

// Importer keeps the executables of plugins by their digests.
type Importer struct {
	Import func(ctx context.Context, executable io.Reader) (digest string, err error)
	// ImportPlugin also asks the plugin for its manifest.
	ImportPlugin func(ctx context.Context, executable io.Reader) (digest string, manifest *rolev1.Manifest, err error)
}

// Prepare returns what the node knows at its start of the roles that it should run. A member has what the cluster last assigned, kept at path. A node that makes its
// cluster has the genesis. One that registers has nothing yet but the executables that it brought.
func Prepare(ctx context.Context, parameters *nodev1.Parameters, sealed *seal.Configuration, path string, p Importer) (*Kept, error) {
	kept := &Kept{Path: path, First: &Assignment{}}
	var err error
	switch {
	case sealed.Phase == seal.Member:
		kept.First, err = ReadAssignment(path)
	case sealed.Registration != nil:
		// Keep writes there when the cluster takes the node in.
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, fmt.Errorf("catalog: %w", err)
		}
		kept.Built, _, err = importBuiltin(ctx, parameters, p)
	default:
		if kept.First, kept.Bootstrap, err = prepareGenesis(ctx, parameters, sealed, path, p); err == nil {
			kept.Built = kept.First.Plugins
		}
	}
	if err != nil {
		return nil, err
	}
	return kept, nil
}

func prepareGenesis(ctx context.Context, parameters *nodev1.Parameters, sealed *seal.Configuration, path string, p Importer) (*Assignment, *clusterv1.BootstrapRequest, error) {
	bootstrap := parameters.GetBootstrap()
	if bootstrap == nil {
		return nil, nil, fmt.Errorf("catalog: the node has begun to make cluster %s, and its parameters have no bootstrap section any more: put it back", sealed.ClusterID)
	}
	if !slices.Equal(bootstrap.GetOwnerPublicKey(), sealed.Owner) {
		return nil, nil, fmt.Errorf("catalog: the node has begun to make cluster %s for another owner key than bootstrap.owner_public_key in its parameters: put the former key back, or start with empty directories", sealed.ClusterID)
	}
	known, catalog, err := makeGenesis(ctx, parameters, p)
	if err != nil {
		return nil, nil, err
	}
	// A member always finds an assignment, however it was stopped on the way.
	if err := WriteAssignment(path, known); err != nil {
		return nil, nil, err
	}
	return known, &clusterv1.BootstrapRequest{
		ClusterId:      sealed.ClusterID,
		NodePublicKey:  sealed.NodeKey.Public().(ed25519.PublicKey),
		OwnerPublicKey: sealed.Owner,
		Labels:         bootstrap.GetLabels(),
		Roles:          known.Roles,
		Plugins:        known.Plugins,
		Reports:        genesis.ReportsOn(catalog, known.Plugins),
		ReportsKey:     catalog.GetReportsKey(),
		// To it snapshots of the store are sealed.
		RecoveryRecipient: bootstrap.GetRecoveryRecipient(),
	}, nil
}

// makeGenesis makes the first catalog out of the built-in plugins, and the first node's roles out of the parameters. What the plugins are is in the genesis
// catalog that was built with them, which is returned as well; without one, each of them is asked.
func makeGenesis(ctx context.Context, parameters *nodev1.Parameters, p Importer) (*Assignment, *nodev1.Genesis, error) {
	records, catalog, err := importBuiltin(ctx, parameters, p)
	if err != nil {
		return nil, nil, err
	}
	known := &Assignment{Plugins: records}
	for _, role := range parameters.GetBootstrap().GetRoles() {
		known.Roles = append(known.Roles, &clusterv1.RoleAssignment{Role: role.GetRole(), Configuration: role.GetConfiguration(), Generation: 1})
	}
	slices.SortFunc(known.Roles, func(a, b *clusterv1.RoleAssignment) int { return cmp.Compare(a.GetRole(), b.GetRole()) })
	return known, catalog, errors.Join(known.check()...)
}

// importBuiltin keeps the executables of the built-in plugins and returns the catalog entries that they would have in a cluster of this node's, sorted by name, and the
// genesis catalog; nil if there is none.
func importBuiltin(ctx context.Context, parameters *nodev1.Parameters, p Importer) ([]*clusterv1.PluginRecord, *nodev1.Genesis, error) {
	var built *nodev1.Genesis
	if path := parameters.GetGenesis(); path != "" {
		var err error
		if built, err = genesis.Load(path); err != nil {
			return nil, nil, fmt.Errorf("catalog: the genesis catalog (genesis in the parameters): %w", err)
		}
	}
	records := make([]*clusterv1.PluginRecord, len(parameters.GetPlugins()))
	problems := make([]error, len(parameters.GetPlugins()))
	group, groupCtx := errgroup.WithContext(ctx)
	for i, builtin := range parameters.GetPlugins() {
		group.Go(func() error {
			records[i], problems[i] = recordOf(groupCtx, builtin, built, p)
			return nil
		})
	}
	if err := errors.Join(group.Wait(), errors.Join(problems...)); err != nil {
		return nil, nil, err
	}
	slices.SortFunc(records, func(a, b *clusterv1.PluginRecord) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return records, built, nil
}

// recordOf imports a built-in plugin and returns its catalog entry: from the genesis catalog if there is one, which must then know these very bytes, and otherwise by
// asking the plugin.
func recordOf(ctx context.Context, builtin *nodev1.BuiltinPlugin, built *nodev1.Genesis, p Importer) (*clusterv1.PluginRecord, error) {
	failed := func(err error) error {
		return fmt.Errorf("catalog: the built-in plugin %s (plugins[].path in the parameters): %w", builtin.GetPath(), err)
	}
	executable, err := plainfile.Open(builtin.GetPath())
	if err != nil {
		return nil, failed(err)
	}
	defer executable.Close()
	var record *clusterv1.PluginRecord
	if built != nil {
		digest, err := p.Import(ctx, executable)
		if err != nil {
			return nil, failed(err)
		}
		if record = proto.CloneOf(genesis.Record(built, digest)); record == nil {
			return nil, failed(unknownDigest(digest, built))
		}
	} else {
		digest, manifest, err := p.ImportPlugin(ctx, executable)
		if err != nil {
			return nil, failed(err)
		}
		record = &clusterv1.PluginRecord{
			Name: manifest.GetName(), Version: manifest.GetVersion(), Manifest: manifest,
			Digests: map[string]string{store.Platform: digest}, Grants: wantedOf(manifest),
		}
	}
	if err := override(record, builtin.GetGrants()); err != nil {
		return nil, failed(err)
	}
	return record, nil
}

// wantedOf is what a plugin that was asked is granted before the parameters have their say: what it wants, but not to be without a sandbox, for
// which the parameters must have the word.
func wantedOf(manifest *rolev1.Manifest) []*clusterv1.RoleGrants {
	wanted := remit.Wanted(manifest)
	for _, grants := range wanted {
		grants.Grants = slices.DeleteFunc(slices.Clone(grants.Grants), func(grant *rolev1.Grant) bool { return grant.GetName() == remit.Privileged })
	}
	return wanted
}

// override grants exactly what the parameters say to the roles that they name.
func override(record *clusterv1.PluginRecord, given []*nodev1.BuiltinGrants) error {
	for _, grants := range given {
		manifest := store.ManifestOf(record, grants.GetRole())
		if manifest == nil {
			return fmt.Errorf("the parameters grant something to a role %q, which plugin %s does not offer", grants.GetRole(), record.GetName())
		}
		if _, err := remit.Of(grants.GetGrants()); err != nil {
			return fmt.Errorf("cannot grant the role %s what the parameters say: %w", grants.GetRole(), err)
		}
		exact := &clusterv1.RoleGrants{Role: grants.GetRole(), ConsensusUser: manifest.GetConsensusUser(), Grants: grants.GetGrants()}
		i := slices.IndexFunc(record.Grants, func(g *clusterv1.RoleGrants) bool { return g.GetRole() == grants.GetRole() })
		if i < 0 {
			record.Grants = append(record.Grants, exact)
		} else {
			record.Grants[i] = exact
		}
	}
	return nil
}

// check returns what keeps a genesis from making a cluster.
func (a *Assignment) check() []error {
	var problems []error
	offered, users := make(map[string]string), make(map[string]string)
	for _, record := range a.Plugins {
		for _, role := range record.GetManifest().GetRoles() {
			if other, taken := offered[role.GetName()]; taken {
				problems = append(problems, fmt.Errorf("catalog: the built-in plugins %s and %s both offer a role %q: leave one of them out", other, record.GetName(), role.GetName()))
			}
			offered[role.GetName()] = record.GetName()
			user := role.GetConsensusUser()
			if other, taken := users[user]; taken && user != "" {
				problems = append(problems, fmt.Errorf("catalog: the built-in plugins %s and %s both declare the ConsensusUser %q: leave one of them out", other, record.GetName(), user))
			}
			users[user] = record.GetName()
		}
	}
	for _, role := range a.Roles {
		if _, ok := offered[role.GetRole()]; !ok {
			problems = append(problems, fmt.Errorf("catalog: bootstrap.roles names a role %q, which no built-in plugin offers", role.GetRole()))
		}
	}
	for _, capability := range []string{roles.CapabilityConsensus, roles.CapabilityCluster} {
		if a.provider(capability) == nil {
			problems = append(problems, fmt.Errorf("catalog: none of the roles in bootstrap.roles provides %s, without which there is no cluster", capability))
		}
	}
	return problems
}

// provider returns what the manifest says of the assigned role that provides a capability; nil if there is none.
func (a *Assignment) provider(capability string) *rolev1.RoleManifest {
	for _, role := range a.Roles {
		if _, manifest := a.Find(role.GetRole()); slices.Contains(manifest.GetProvides(), capability) {
			return manifest
		}
	}
	return nil
}

// ClusterAPIUser is the ConsensusUser of the cluster API; empty: it is not known, or there is no assignment.
func (a *Assignment) ClusterAPIUser() string {
	if a == nil {
		return ""
	}
	return cmp.Or(a.provider(roles.CapabilityCluster).GetConsensusUser(), a.ClusterUser)
}

// Find returns the plugin that offers a role, and what its manifest says of the role; nil if there is none.
func (a *Assignment) Find(role string) (*clusterv1.PluginRecord, *rolev1.RoleManifest) {
	for _, record := range a.Plugins {
		for _, manifest := range record.GetManifest().GetRoles() {
			if manifest.GetName() == role {
				return record, manifest
			}
		}
	}
	return nil, nil
}
