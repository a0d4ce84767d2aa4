package management

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/auth"
	"github.com/reeveproject/reeve/plugins/curator/internal/configuration"
	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	sdk "github.com/reeveproject/reeve/sdk/role"
)

// AddRole implements clusterv1.ManagementServiceServer.
func (s *Service) AddRole(ctx context.Context, request *clusterv1.AddRoleRequest) (*clusterv1.AddRoleResponse, error) {
	problems := rules.RoleName("role", request.GetRole())
	problems = append(problems, rules.Configuration("configuration", request.GetConfiguration(), nil)...)
	if request.GetKeepConfiguration() && request.GetConfiguration() != "" {
		problems = append(problems, rules.Problem{Field: "keep_configuration", Message: "it is set, although a configuration is given"})
	}
	if err := answer.Invalid(problems); err != nil {
		return nil, err
	}
	wanted := &clusterv1.RoleAssignment{Role: request.GetRole(), Configuration: request.GetConfiguration()}
	node, err := s.changeRoles(ctx, request, "configuration", func(_ *store.State, node *clusterv1.NodeRecord) ([]*clusterv1.RoleAssignment, error) {
		if request.GetKeepConfiguration() {
			wanted.Configuration = assigned(node.GetRoles(), wanted.GetRole()).GetConfiguration()
		}
		return append(without(staying(node), wanted.GetRole()), wanted), nil
	})
	if err != nil {
		return nil, err
	}
	s.made(ctx, request.GetDryRun(), "role added", "node", node.GetId(), "role", request.GetRole(), "generation", node.GetGeneration())
	return &clusterv1.AddRoleResponse{Node: node}, nil
}

// RemoveRole implements clusterv1.ManagementServiceServer.
func (s *Service) RemoveRole(ctx context.Context, request *clusterv1.RemoveRoleRequest) (*clusterv1.RemoveRoleResponse, error) {
	node, err := s.changeRoles(ctx, request, "", func(state *store.State, node *clusterv1.NodeRecord) ([]*clusterv1.RoleAssignment, error) {
		gone := assigned(node.GetRoles(), request.GetRole()) == nil
		if gone && (!request.GetWipe() || !mayBeWiped(state, node, request.GetRole())) {
			return nil, answer.Errorf(codes.NotFound, "the role %s is not assigned to node %s; its roles are %s",
				quote(request.GetRole()), node.GetId(), names(node.GetRoles()))
		}
		return without(staying(node), request.GetRole()), nil
	})
	if err != nil {
		return nil, err
	}
	s.made(ctx, request.GetDryRun(), "role removed", "node", node.GetId(), "role", request.GetRole(), "wipe", request.GetWipe(), "generation", node.GetGeneration())
	return &clusterv1.RemoveRoleResponse{Node: node}, nil
}

// mayBeWiped reports whether the data of a role that is not assigned to a node may be left there: somebody took the role from it before, and did not say
// then that its data should go, or the answer was lost. A role of which nobody knows is more likely a slip of the pen.
func mayBeWiped(state *store.State, node *clusterv1.NodeRecord, role string) bool {
	return slices.Contains(node.GetWipedRoles(), role) ||
		slices.ContainsFunc(state.Catalog(), func(plugin *clusterv1.PluginRecord) bool { return slices.Contains(rules.RolesOf(plugin), role) })
}

// SetRoles implements clusterv1.ManagementServiceServer.
func (s *Service) SetRoles(ctx context.Context, request *clusterv1.SetRolesRequest) (*clusterv1.SetRolesResponse, error) {
	if err := answer.Invalid(rules.Assignments("roles", request.GetRoles())); err != nil {
		return nil, err
	}
	node, err := s.changeRoles(ctx, request, "roles", func(_ *store.State, node *clusterv1.NodeRecord) ([]*clusterv1.RoleAssignment, error) {
		if expected := request.GetExpectedGeneration(); expected != 0 && expected != node.GetGeneration() {
			return nil, answer.Errorf(codes.Aborted, "the record of node %s has generation %d, not %d: somebody changed it; read it again and decide anew",
				node.GetId(), node.GetGeneration(), expected)
		}
		return request.GetRoles(), nil
	})
	if err != nil {
		return nil, err
	}
	s.made(ctx, request.GetDryRun(), "roles set", "node", node.GetId(), "roles", names(node.GetRoles()), "generation", node.GetGeneration())
	return &clusterv1.SetRolesResponse{Node: node}, nil
}

// changeRoles makes one management write that replaces the roles of a node by those that wish returns, under the rules that every change of
// roles is under. field is where a configuration is in the request, for messages. It returns the record as it then is.
func (s *Service) changeRoles(
	ctx context.Context, request nodeChange, field string,
	wish func(*store.State, *clusterv1.NodeRecord) ([]*clusterv1.RoleAssignment, error),
) (*clusterv1.NodeRecord, error) {
	return s.changeNode(ctx, request, func(state *store.State, before *clusterv1.NodeRecord) (*clusterv1.NodeRecord, error) {
		if err := mayHaveRoles(before); err != nil {
			return nil, err
		}
		wanted, err := wish(state, before)
		if err != nil {
			return nil, err
		}
		after, err := assign(state, before, reworded(ctx, state, before, wanted), wiping(request))
		if err != nil || after == nil {
			return nil, err
		}
		if err := mayAssign(ctx, state, before, after); err != nil {
			return nil, err
		}
		if err := check(state, before, after, field); err != nil {
			return nil, err
		}
		// What removes a role makes room, although the record may be larger until the role has left.
		if _, removes := request.(*clusterv1.RemoveRoleRequest); !removes {
			caller, _ := auth.CallerOf(ctx)
			if err := answer.Invalid(rules.RoomForNode(field, caller.Kind, state.Nodes, after)); err != nil {
				return nil, err
			}
		}
		return after, s.curatorStays(ctx, state, before, after)
	})
}

// mayAssign returns why who calls may not have a node have the roles that it did not have before, or with another configuration: who runs a curator or a member of the consensus
// store has what the owner has, so that an operator who could name the node for it would be one. A role that leaves is one that the node does not have any more: who
// took it from there decided so.
func mayAssign(ctx context.Context, state *store.State, before, after *clusterv1.NodeRecord) error {
	caller, _ := auth.CallerOf(ctx)
	if caller.Kind == clusterv1.Caller_CALLER_OWNER {
		return nil
	}
	for _, assignment := range after.GetRoles() {
		had := assigned(before.GetRoles(), assignment.GetRole())
		what := "assigns it to a node"
		switch {
		case had == nil:
		case had.GetLeaving() && !assignment.GetLeaving():
			what = "keeps it on a node that it leaves"
		case had.GetConfiguration() != assignment.GetConfiguration():
			what = "configures it"
		default:
			continue
		}
		if capability := rules.Guarded(state, assignment.GetRole()); capability != "" {
			return answer.Errorf(codes.PermissionDenied, "the role %q provides %s, and a node that runs it can do in the cluster what an owner can: only an owner %s, "+
				"and not %s; have one do it (`reeve node role add %s %s`)", assignment.GetRole(), capability, what, caller, before.GetId(), assignment.GetRole())
		}
	}
	return nil
}

// reworded returns wanted roles in which whoever may not configure a role has written the configuration that it has in other words: then it stays as an owner has written it. Who may configure it
// may mean the words: a role can tell 1 from 1.0.
func reworded(ctx context.Context, state *store.State, before *clusterv1.NodeRecord, wanted []*clusterv1.RoleAssignment) []*clusterv1.RoleAssignment {
	if caller, _ := auth.CallerOf(ctx); caller.Kind == clusterv1.Caller_CALLER_OWNER {
		return wanted
	}
	wanted = slices.Clone(wanted)
	for i, assignment := range wanted {
		had := assigned(before.GetRoles(), assignment.GetRole())
		if had != nil && rules.Guarded(state, had.GetRole()) != "" && rules.SameConfiguration(had.GetConfiguration(), assignment.GetConfiguration()) {
			wanted[i] = had
		}
	}
	return wanted
}

// wiping is the roles whose data a request has the node remove.
func wiping(request nodeChange) []string {
	if removal, ok := request.(*clusterv1.RemoveRoleRequest); ok && removal.GetWipe() {
		return []string{removal.GetRole()}
	}
	return nil
}

// assign returns the record with the wanted roles, with those that have to leave first, and with those whose data the node removes, or nil if all that is what it
// has.
func assign(state *store.State, before *clusterv1.NodeRecord, wanted []*clusterv1.RoleAssignment, wipe []string) (*clusterv1.NodeRecord, error) {
	after := proto.CloneOf(before)
	after.Generation++
	after.Roles = nil
	for _, assignment := range wanted {
		had := assigned(before.GetRoles(), assignment.GetRole())
		if had.GetLeaving() && state.Left(before.GetId()) {
			return nil, justLeft(before.GetId(), had.GetRole())
		}
		next := &clusterv1.RoleAssignment{Role: assignment.GetRole(), Configuration: assignment.GetConfiguration(), Generation: after.GetGeneration()}
		if had != nil && had.GetConfiguration() == assignment.GetConfiguration() {
			next.Generation = had.GetGeneration()
		}
		after.Roles = append(after.Roles, next)
	}
	after.Roles = append(after.Roles, leavers(state, before, after.GetRoles())...)
	after.WipedRoles = wiped(after, wipe...)
	slices.SortFunc(after.Roles, func(a, b *clusterv1.RoleAssignment) int { return cmp.Compare(a.GetRole(), b.GetRole()) })
	same := func(a, b *clusterv1.RoleAssignment) bool { return proto.Equal(a, b) }
	if slices.EqualFunc(after.GetRoles(), before.GetRoles(), same) && slices.Equal(after.GetWipedRoles(), before.GetWipedRoles()) {
		return nil, nil
	}
	return after, nil
}

// check holds a changed record against the rules of the whole cluster.
func check(state *store.State, before, after *clusterv1.NodeRecord, field string) error {
	if n := len(after.GetRoles()); n > rules.MaxRoles {
		return answer.Errorf(codes.InvalidArgument, "node %s would have %d roles, a node runs at most %d", after.GetId(), n, rules.MaxRoles)
	}
	if size := proto.Size(after); size > rules.MaxNode {
		return answer.Errorf(codes.InvalidArgument, "the record of node %s would have %d bytes, at most %d fit: make configurations smaller", after.GetId(), size, rules.MaxNode)
	}
	var problems rules.Problems
	for _, assignment := range after.GetRoles() {
		had := assigned(before.GetRoles(), assignment.GetRole())
		role, _ := state.Role(assignment.GetRole())
		if had == nil && role == nil {
			return unknownRole(state, assignment.GetRole())
		}
		if had != nil && had.GetGeneration() == assignment.GetGeneration() {
			// What was right when it was set is not held against a later schema: the role itself says whether it still is.
			continue
		}
		at := field
		if field == "roles" {
			at = fmt.Sprintf("roles[%s].configuration", assignment.GetRole())
		}
		unfit := rules.Configuration(at, assignment.GetConfiguration(), role)
		if len(unfit) == 0 {
			unfit = ownConfiguration(at, assignment.GetConfiguration(), role)
		}
		problems = append(problems, unfit...)
	}
	if err := answer.Invalid(problems); err != nil {
		return err
	}
	next := state.With(&store.Change{Nodes: []*clusterv1.NodeRecord{after}})
	reasons := sentences(state, rules.Introduced(state, next))
	reasons = append(reasons, lastOf(state, next, after.GetId())...)
	reasons = append(reasons, rules.Unsafe(state, next)...)
	if len(reasons) > 0 {
		return answer.Errorf(codes.FailedPrecondition, "%s", strings.Join(reasons, "; "))
	}
	return proven(state, next)
}

// ownConfiguration checks the configuration of a role that is a curator's as the curator itself will when it starts. Any other role that refuses its
// configuration can be given another one; a curator that did would be the last one who could.
func ownConfiguration(field, document string, role *rolev1.RoleManifest) (problems rules.Problems) {
	if !slices.Contains(role.GetProvides(), rules.CapabilityCluster) {
		return nil
	}
	var refused *sdk.ConfigurationError
	if _, err := configuration.Parse([]byte(document)); errors.As(err, &refused) {
		for _, problem := range refused.Problems {
			problems = append(problems, rules.Problem{Field: field + problem.Path, Message: problem.Message})
		}
	}
	return problems
}

// sentences say what a change breaks, and what to do about it.
func sentences(state *store.State, violations []rules.Violation) []string {
	var sentences []string
	for _, violation := range violations {
		text := violation.String()
		if violation.Waiting == "" && violation.Requirement != "" {
			if providers := rules.Providers(state, violation.Requirement); len(providers) > 0 {
				text += fmt.Sprintf(": have %s assigned to the node, or role %q not", strings.Join(providers, " or "), violation.Role)
			} else {
				text += ", nor does any plugin of the catalog offer it: add one with `reeve plugin add FILE`"
			}
		}
		sentences = append(sentences, text)
	}
	return sentences
}

func unknownRole(state *store.State, role string) error {
	if plugin := rules.Waiting(state, role); plugin != nil {
		return answer.Errorf(codes.FailedPrecondition, "the role %q is offered by version %s of plugin %q, which waits for the owner's approval: `reeve plugin approve %s`",
			role, plugin.GetWaiting().GetVersion(), plugin.GetName(), plugin.GetName())
	}
	known := "the catalog is empty"
	if names := rules.RoleNames(state); len(names) > 0 {
		known = "the roles of the catalog are " + strings.Join(names, ", ")
	}
	return answer.Veiled(codes.NotFound, "no plugin of the catalog offers the role; "+known,
		"no plugin of the catalog offers a role %s; %s; to add the plugin that offers it: `reeve plugin add FILE`", quote(role), known)
}

func without(assignments []*clusterv1.RoleAssignment, role string) []*clusterv1.RoleAssignment {
	return slices.DeleteFunc(slices.Clone(assignments), func(a *clusterv1.RoleAssignment) bool { return a.GetRole() == role })
}

func assigned(assignments []*clusterv1.RoleAssignment, role string) *clusterv1.RoleAssignment {
	for _, assignment := range assignments {
		if assignment.GetRole() == role {
			return assignment
		}
	}
	return nil
}

func names(assignments []*clusterv1.RoleAssignment) string {
	var names []string
	for _, assignment := range assignments {
		names = append(names, assignment.GetRole())
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
