package command

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/proto/remit"
)

// consensusUser is how the command line names, among the powers of a role, that it uses the store.
const consensusUser = "consensus-user"

// power is a power of a role that the command line names: ROLE:NAME, or ROLE:NAME:KEY=VALUE.
type power struct {
	role, grant string
	// key is empty if no parameter is named.
	key, value string
}

func (p power) text() string {
	text := p.role + ":" + p.grant
	if p.key != "" {
		text += ":" + p.key + "=" + p.value
	}
	return text
}

// parsePowers reads what is named with a flag, or as an argument.
func parsePowers(flag string, texts []string) ([]power, error) {
	var powers []power
	for _, text := range texts {
		one := power{}
		var rest string
		var found, ok bool
		one.role, rest, ok = strings.Cut(text, ":")
		if one.grant, rest, found = strings.Cut(rest, ":"); found {
			one.key, one.value, found = strings.Cut(rest, "=")
			ok = ok && found && one.key != ""
		}
		if !ok || one.role == "" || one.grant == "" {
			return nil, fault.New(fault.Usage, fmt.Sprintf("%s%q is not of the form ROLE:NAME or ROLE:NAME:KEY=VALUE", flag, text),
				"For example "+flag+"hostsfile:replace-file:path=/etc/hosts.")
		}
		powers = append(powers, one)
	}
	return powers, nil
}

// choice is what the owner decides about one role.
type choice struct {
	plugin string
	role   *rolev1.RoleManifest
	user   string
	// grants are those for what the role asks for, in its order; nil where it is refused.
	grants []*rolev1.Grant
}

// keep makes the choice that changes nothing of what was decided: what was asked for before is granted as it was, or refused as it was. What was not
// asked for before is granted.
func keep(plugin string, role *rolev1.RoleManifest, asked, had *clusterv1.RoleGrants) *choice {
	c := &choice{plugin: plugin, role: role, user: role.GetConsensusUser(), grants: make([]*rolev1.Grant, len(role.GetGrants()))}
	if c.user == asked.GetConsensusUser() {
		c.user = had.GetConsensusUser()
	}
	// What was granted and not asked for are grants with parameters of the owner, in place of what was asked for under the same name.
	instead := slices.DeleteFunc(slices.Clone(had.GetGrants()), func(grant *rolev1.Grant) bool { return remit.Has(asked.GetGrants(), grant) })
	for i, wanted := range role.GetGrants() {
		switch {
		case remit.Has(had.GetGrants(), wanted), !remit.Has(asked.GetGrants(), wanted):
			c.grants[i] = wanted
		default:
			if at := slices.IndexFunc(instead, func(grant *rolev1.Grant) bool { return grant.GetName() == wanted.GetName() }); at >= 0 {
				c.grants[i] = instead[at]
				instead = slices.Delete(instead, at, at+1)
			}
		}
	}
	return c
}

// named are the places of what the role asks for under the name of a power.
func (c *choice) named(p power) ([]int, error) {
	var places []int
	for i, wanted := range c.role.GetGrants() {
		if wanted.GetName() == p.grant {
			places = append(places, i)
		}
	}
	if len(places) == 0 {
		return nil, c.notAsked(p)
	}
	return places, nil
}

func (c *choice) notAsked(p power) error {
	return fault.New(fault.Usage, fmt.Sprintf("plugin %s does not ask for %s for a role %s", output.Clean(c.plugin), p.grant, p.role),
		"Only what its manifest asks for can be granted or refused: run `reeve plugin show "+output.Clean(c.plugin)+"`.")
}

// grant grants a power, with its parameter in place of the one that is asked for.
func (c *choice) grant(p power) error {
	if p.grant == consensusUser {
		if c.user = c.role.GetConsensusUser(); c.user == "" || p.key != "" {
			return c.notAsked(p)
		}
		return nil
	}
	places, err := c.named(p)
	if err != nil {
		return err
	}
	exact := slices.DeleteFunc(slices.Clone(places), func(i int) bool { return c.role.GetGrants()[i].GetParameters()[p.key] != p.value })
	switch {
	case p.key == "":
		for _, i := range places {
			if c.grants[i] == nil {
				c.grants[i] = c.role.GetGrants()[i]
			}
		}
	case len(places) == 1:
		granted := c.grants[places[0]]
		if granted == nil {
			granted = c.role.GetGrants()[places[0]]
		}
		parameters := maps.Clone(granted.GetParameters())
		if parameters == nil {
			parameters = make(map[string]string)
		}
		parameters[p.key] = p.value
		c.grants[places[0]] = &rolev1.Grant{Name: granted.GetName(), Parameters: parameters}
	case len(exact) > 0:
		for _, i := range exact {
			c.grants[i] = c.role.GetGrants()[i]
		}
	default:
		return fault.New(fault.Usage, fmt.Sprintf("role %s asks for %s %d times, and never with %s=%s", p.role, p.grant, len(places), p.key, p.value),
			"A parameter of one of several says which is meant: give one that is asked for.")
	}
	return nil
}

// refuse refuses a power; with a parameter only what has it, as it is asked for or granted.
func (c *choice) refuse(p power) error {
	if p.grant == consensusUser {
		if c.role.GetConsensusUser() == "" || p.key != "" {
			return c.notAsked(p)
		}
		c.user = ""
		return nil
	}
	places, err := c.named(p)
	if err != nil {
		return err
	}
	found := false
	for _, i := range places {
		if p.key == "" || c.role.GetGrants()[i].GetParameters()[p.key] == p.value || c.grants[i].GetParameters()[p.key] == p.value {
			c.grants[i], found = nil, true
		}
	}
	if !found {
		return c.notAsked(p)
	}
	return nil
}

// result is what the role is granted in all.
func (c *choice) result() *clusterv1.RoleGrants {
	return &clusterv1.RoleGrants{
		Role: c.role.GetName(), ConsensusUser: c.user,
		Grants: slices.DeleteFunc(slices.Clone(c.grants), func(grant *rolev1.Grant) bool { return grant == nil }),
	}
}

// grantsFor returns what the roles of a version are granted when the owner approves it: what was decided stays as it was, what is new is granted as it is asked
// for; and on that what the command line grants and refuses. Roles that are granted nothing are not in it.
func grantsFor(manifest *rolev1.Manifest, record *clusterv1.PluginRecord, granted, withheld []power) ([]*clusterv1.RoleGrants, error) {
	choices := make(map[string]*choice)
	for _, role := range manifest.GetRoles() {
		choices[role.GetName()] = keep(manifest.GetName(), role, remit.ForRole(record.GetDecided(), role.GetName()), remit.ForRole(record.GetGrants(), role.GetName()))
	}
	apply := func(powers []power, do func(*choice, power) error) error {
		for _, p := range powers {
			of := choices[p.role]
			if of == nil {
				return (&choice{plugin: manifest.GetName()}).notAsked(p)
			}
			if err := do(of, p); err != nil {
				return err
			}
		}
		return nil
	}
	if err := apply(granted, (*choice).grant); err != nil {
		return nil, err
	}
	if err := apply(withheld, (*choice).refuse); err != nil {
		return nil, err
	}
	var all []*clusterv1.RoleGrants
	for _, role := range manifest.GetRoles() {
		if of := choices[role.GetName()].result(); of.GetConsensusUser() != "" || len(of.GetGrants()) > 0 {
			all = append(all, of)
		}
	}
	return all, nil
}
