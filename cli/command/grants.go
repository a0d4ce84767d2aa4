package command

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/reeveproject/reeve/cli/fault"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// grantParameter is a power of the host that the owner grants on the command line, and a parameter in place of the one that the manifest asks for.
type grantParameter struct {
	role, grant string
	// key is empty if no parameter is set.
	key, value string
	used       bool
}

func parseGrants(texts []string) ([]grantParameter, error) {
	var overrides []grantParameter
	for _, text := range texts {
		parts := strings.SplitN(text, ":", 3)
		override := grantParameter{role: parts[0]}
		ok := len(parts) > 1
		if ok {
			override.grant = parts[1]
		}
		if len(parts) == 3 {
			override.key, override.value, ok = strings.Cut(parts[2], "=")
			ok = ok && override.key != ""
		}
		if !ok || override.role == "" || override.grant == "" {
			return nil, fault.New(fault.Usage, fmt.Sprintf("--grant %q is not of the form ROLE:NAME or ROLE:NAME:KEY=VALUE", text),
				"For example --grant hostsfile:replace-file:path=/etc/hosts.")
		}
		overrides = append(overrides, override)
	}
	return overrides, nil
}

// find returns the catalog's entry of a plugin; nil if there is none.
func find(plugins []*clusterv1.PluginRecord, name string) *clusterv1.PluginRecord {
	for _, plugin := range plugins {
		if plugin.GetName() == name {
			return plugin
		}
	}
	return nil
}

// held is what the roles of the version of a plugin that is in the catalog were granted: by role and name of the power. A role that the version does not
// have is not in it.
func held(former *clusterv1.PluginRecord) map[string]map[string]*rolev1.Grant {
	held := make(map[string]map[string]*rolev1.Grant)
	for _, role := range former.GetManifest().GetRoles() {
		held[role.GetName()] = make(map[string]*rolev1.Grant)
	}
	for _, grants := range former.GetGrants() {
		for _, grant := range grants.GetGrants() {
			if of := held[grants.GetRole()]; of != nil {
				of[grant.GetName()] = grant
			}
		}
	}
	return held
}

// grantsFor returns what the owner grants: to a role that is new what the manifest wants, to one that the former version has what it was granted and still
// wants; with what was granted on the command line. withheld are the powers that are wanted and not granted, as "role:power".
func grantsFor(manifest *rolev1.Manifest, former *clusterv1.PluginRecord, overrides []grantParameter) (grants []*clusterv1.RoleGrants, withheld []string, err error) {
	before := held(former)
	for _, role := range manifest.GetRoles() {
		of := &clusterv1.RoleGrants{Role: role.GetName()}
		had, known := before[role.GetName()]
		for _, wanted := range role.GetGrants() {
			grant, given := wanted, !known
			if known && had[wanted.GetName()] != nil {
				grant, given = had[wanted.GetName()], true
			}
			parameters := maps.Clone(grant.GetParameters())
			for i, override := range overrides {
				if override.role != role.GetName() || override.grant != wanted.GetName() {
					continue
				}
				overrides[i].used, given = true, true
				if override.key == "" {
					continue
				}
				if parameters == nil {
					parameters = make(map[string]string)
				}
				parameters[override.key] = override.value
			}
			if !given {
				withheld = append(withheld, role.GetName()+":"+wanted.GetName())
				continue
			}
			of.Grants = append(of.Grants, &rolev1.Grant{Name: wanted.GetName(), Parameters: parameters})
		}
		if len(of.Grants) > 0 {
			grants = append(grants, of)
		}
	}
	for _, override := range overrides {
		if !override.used {
			return nil, nil, fault.New(fault.Usage,
				fmt.Sprintf("plugin %s does not want grant %s for a role %s", manifest.GetName(), override.grant, override.role),
				"Only grants that its manifest wants can be granted.")
		}
	}
	slices.Sort(withheld)
	return grants, withheld, nil
}
