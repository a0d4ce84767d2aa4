package command

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/redact"
	"github.com/reeveproject/reeve/cli/target"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// roleAddition is a role to give to a node.
type roleAddition struct {
	role, configuration        string
	dryRun, withRequired, show bool
	// keep says that the role keeps the configuration that it has on the node.
	keep bool
	// lacking is what the role requires and the node does not have, in the order in which it can start.
	lacking []string
	// node is what the cluster knew of the node before; nil: it was not asked.
	node *clusterv1.Node
}

// askAddition finds out what the node has, what the role requires that it does not have, and asks at a terminal whether to give the node that, too. Without a terminal the cluster refuses the
// role, and says why.
func (c *commands) askAddition(ctx context.Context, cluster *target.Target, node target.Node, addition *roleAddition) error {
	plugins, err := listPlugins(ctx, cluster)
	if err != nil {
		return err
	}
	catalog := make(map[string]*rolev1.RoleManifest)
	for _, plugin := range plugins {
		for _, role := range plugin.GetManifest().GetRoles() {
			catalog[role.GetName()] = role
		}
	}
	if len(catalog[addition.role].GetRequires()) == 0 && !addition.dryRun {
		return nil
	}
	if addition.node, err = getNode(ctx, cluster, node); err != nil {
		return err
	}
	lacking, err := lackingRoles(catalog, staying(addition.node), addition.role)
	if err != nil || len(lacking) == 0 {
		return err
	}
	addition.lacking = lacking
	named := output.Clean(strings.Join(lacking, ", "))
	switch {
	case addition.withRequired:
		c.say("Role " + addition.role + " requires " + named + ", which node " + node.ID + " gets, too.")
		return nil
	case !c.Interactive || addition.dryRun:
		return nil
	}
	c.say("Role " + addition.role + " requires " + named + ", which node " + node.ID + " does not have.")
	addition.withRequired = true
	return c.confirm(ctx, "Give it to the node, too?", "")
}

// staying are the roles of a node that do not leave it.
func staying(node *clusterv1.Node) []*clusterv1.RoleAssignment {
	return slices.DeleteFunc(slices.Clone(node.GetRecord().GetRoles()), func(role *clusterv1.RoleAssignment) bool { return role.GetLeaving() })
}

// lackingRoles are the roles that have to be on a node before another one, and are not, in the order in which they can start. What no plugin offers is left out: the cluster says that better.
func lackingRoles(catalog map[string]*rolev1.RoleManifest, has []*clusterv1.RoleAssignment, wanted string) ([]string, error) {
	there := make(map[string]bool)
	for _, assignment := range has {
		there[assignment.GetRole()] = true
	}
	meets := func(role, requirement string) bool {
		return role == requirement || slices.Contains(catalog[role].GetProvides(), requirement)
	}
	var lacking []string
	var require func(role string) error
	require = func(role string) error {
		there[role] = true // also while its own requirements are looked for: those in a circle end
		for _, requirement := range catalog[role].GetRequires() {
			met := false
			for other := range there {
				met = met || other != role && meets(other, requirement)
			}
			if met {
				continue
			}
			var candidates []string
			for other := range catalog {
				if other != role && meets(other, requirement) {
					candidates = append(candidates, other)
				}
			}
			slices.Sort(candidates)
			switch len(candidates) {
			case 0:
				continue
			case 1:
			default:
				return fault.New(fault.Refused, fmt.Sprintf("role %s requires %s, which %s of the catalog are or provide", output.Clean(role), output.Clean(requirement),
					output.Clean(strings.Join(candidates, " and "))), "Give the node one of them first, with `reeve node role add`.")
			}
			if err := require(candidates[0]); err != nil {
				return err
			}
			lacking = append(lacking, candidates[0])
		}
		return nil
	}
	return lacking, require(wanted)
}

// make gives the node the role, and what it requires if that was agreed to: all in one step.
func (a *roleAddition) make(ctx context.Context, management clusterv1.ManagementServiceClient, nodeID string, document *output.RoleChange) (uint64, error) {
	var record *clusterv1.NodeRecord
	var err error
	if a.withRequired && len(a.lacking) > 0 {
		record, err = a.makeAll(ctx, management, nodeID)
		document.Required = a.lacking
	} else {
		var response *clusterv1.AddRoleResponse
		response, err = management.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: nodeID, Role: a.role, Configuration: a.configuration, KeepConfiguration: a.keep, DryRun: a.dryRun})
		record = response.GetNode()
	}
	if err != nil {
		next := "Run `reeve plugin list` to see the roles, `reeve plugin add FILE` to add one."
		switch code := status.Code(err); {
		case code == codes.InvalidArgument:
			next = "Correct the configuration and run the command again."
		case code == codes.Aborted:
			next = "Run the command again."
		case code == codes.FailedPrecondition && len(a.lacking) > 0 && !a.withRequired:
			next = "Give --with-required to give the node " + output.Clean(strings.Join(a.lacking, ", ")) + ", too."
		}
		return 0, fault.FromRPC(err, fmt.Sprintf("cannot give role %s to node %s", a.role, nodeID), next)
	}
	if given := assigned(record, a.role); given != nil {
		if a.dryRun {
			document.Configuration = redact.Changes(assigned(a.node.GetRecord(), a.role).GetConfiguration(), given.GetConfiguration(), a.show)
		}
		return given.GetGeneration(), nil
	}
	return 0, fault.New(fault.Failed, "the cluster accepted role "+a.role+", and did not keep it", "Another operator may have removed it: run `reeve node list`.")
}

// assigned is what a node has of a role; nil: it does not have it.
func assigned(node *clusterv1.NodeRecord, role string) *clusterv1.RoleAssignment {
	for _, assignment := range node.GetRoles() {
		if assignment.GetRole() == role {
			return assignment
		}
	}
	return nil
}

// makeAll sets all roles of the node, if nobody has changed them meanwhile.
func (a *roleAddition) makeAll(ctx context.Context, management clusterv1.ManagementServiceClient, nodeID string) (*clusterv1.NodeRecord, error) {
	roles := slices.DeleteFunc(staying(a.node), func(role *clusterv1.RoleAssignment) bool { return role.GetRole() == a.role })
	for _, required := range a.lacking {
		roles = append(roles, &clusterv1.RoleAssignment{Role: required})
	}
	configuration := a.configuration
	if a.keep {
		configuration = assigned(a.node.GetRecord(), a.role).GetConfiguration()
	}
	roles = append(roles, &clusterv1.RoleAssignment{Role: a.role, Configuration: configuration})
	response, err := management.SetRoles(ctx, &clusterv1.SetRolesRequest{
		NodeId: nodeID, Roles: roles, ExpectedGeneration: a.node.GetRecord().GetGeneration(), DryRun: a.dryRun,
	})
	return response.GetNode(), err
}
