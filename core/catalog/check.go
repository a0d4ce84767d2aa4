package catalog

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/core/genesis"
	"github.com/reeveproject/reeve/core/plugin/store"
	"github.com/reeveproject/reeve/proto/configuration"
	"github.com/reeveproject/reeve/proto/plainfile"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// Expect returns the roles that a node which begins with these parameters wants, and its built-in plugins; problems is what the node, or the cluster that it makes, would refuse
// of them. It changes nothing. What a plugin is, is in the genesis catalog. Without one the plugins are not asked, so that nothing is known of them but what the parameters
// grant.
func Expect(parameters *nodev1.Parameters) (expected *Assignment, problems []error) {
	expected = &Assignment{}
	var built *nodev1.Genesis
	if path := parameters.GetGenesis(); path != "" {
		var err error
		if built, err = genesis.Load(path); err != nil {
			return expected, []error{fmt.Errorf("catalog: the genesis catalog (genesis in the parameters): %w", err)}
		}
	}
	for _, builtin := range parameters.GetPlugins() {
		record, err := expectedRecord(builtin, built)
		if err != nil {
			problems = append(problems, fmt.Errorf("catalog: the built-in plugin %s (plugins[].path in the parameters): %w", builtin.GetPath(), err))
			continue
		}
		expected.Plugins = append(expected.Plugins, record)
	}
	for i, role := range parameters.GetBootstrap().GetRoles() {
		_, manifest := expected.Find(role.GetRole())
		problems = append(problems, expected.want(fmt.Sprintf("bootstrap.roles[%d]", i), role, manifest)...)
	}
	for i, role := range parameters.GetRegister().GetRoles() {
		// The cluster may have another version of the plugin, with another schema.
		problems = append(problems, expected.want(fmt.Sprintf("register.roles[%d]", i), role, nil)...)
	}
	if built != nil && parameters.GetBootstrap() != nil && len(expected.Plugins) == len(parameters.GetPlugins()) {
		problems = append(problems, expected.check()...)
	}
	return expected, problems
}

// CheckConfigurations returns an error if a configuration of a new cluster's role does not fit its schema in the genesis catalog: what is stored when the node is made cannot be corrected
// in the parameters any more. A role of which the catalog says nothing, or a catalog that cannot be read, is refused later.
func CheckConfigurations(parameters *nodev1.Parameters) error {
	built, err := genesis.Load(parameters.GetGenesis())
	if err != nil {
		return nil
	}
	known := &Assignment{Plugins: built.GetPlugins()}
	var problems []error
	for i, role := range parameters.GetBootstrap().GetRoles() {
		_, manifest := known.Find(role.GetRole())
		problems = append(problems, known.want(fmt.Sprintf("bootstrap.roles[%d]", i), role, manifest)...)
	}
	return errors.Join(problems...)
}

// want adds a role of the parameters, and returns what is wrong with its configuration. manifest is nil if it is not known.
func (a *Assignment) want(at string, role *nodev1.BootstrapRole, manifest *rolev1.RoleManifest) (problems []error) {
	a.Roles = append(a.Roles, &clusterv1.RoleAssignment{Role: role.GetRole(), Configuration: role.GetConfiguration()})
	for _, problem := range configuration.Check(role.GetConfiguration(), manifest) {
		problems = append(problems, fmt.Errorf("catalog: %s.configuration%s in the parameters does not fit the role %s: %s", at, problem.Path, role.GetRole(), problem.Message))
	}
	return problems
}

// expectedRecord returns the catalog entry that a built-in plugin would have, as far as it is known.
func expectedRecord(builtin *nodev1.BuiltinPlugin, built *nodev1.Genesis) (*clusterv1.PluginRecord, error) {
	executable, err := plainfile.Open(builtin.GetPath())
	if err != nil {
		return nil, err
	}
	defer executable.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, executable); err != nil {
		return nil, err
	}
	if built == nil {
		record := &clusterv1.PluginRecord{}
		for _, given := range builtin.GetGrants() {
			record.Grants = append(record.Grants, &clusterv1.RoleGrants{Role: given.GetRole(), Grants: given.GetGrants()})
		}
		return record, nil
	}
	digest := fmt.Sprintf("sha256:%x", hash.Sum(nil))
	record := proto.CloneOf(genesis.Record(built, digest))
	if record == nil {
		return nil, unknownDigest(digest, built)
	}
	return record, override(record, builtin.GetGrants())
}

// Granted returns the grants of an assigned role.
func (a *Assignment) Granted(role string) []*rolev1.Grant {
	for _, record := range a.Plugins {
		for _, of := range record.GetGrants() {
			if of.GetRole() == role {
				return of.GetGrants()
			}
		}
	}
	return nil
}

// unknownDigest says that a genesis catalog does not know an executable.
func unknownDigest(digest string, built *nodev1.Genesis) error {
	return fmt.Errorf("its digest is %s, and the genesis catalog knows for %s only %s with other digests: the file was changed after it was built; build both again, or take `genesis` out of the parameters to have the plugin asked",
		digest, store.Platform, cmp.Or(genesis.Names(built), "nothing"))
}
