package management

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// RemovePlugin implements clusterv1.ManagementServiceServer.
func (s *Service) RemovePlugin(ctx context.Context, request *clusterv1.RemovePluginRequest) (*clusterv1.RemovePluginResponse, error) {
	if err := answer.Invalid(rules.PluginName("name", request.GetName())); err != nil {
		return nil, err
	}
	// Which curators run is none of the records that decisions compare: it changes by itself all the time.
	seen, err := s.config.Store.ReadCluster(ctx)
	if err != nil {
		return nil, err
	}
	response := new(clusterv1.RemovePluginResponse)
	left := 0
	for gone := false; !gone; {
		before := response.GetNodes()
		_, err := s.change(ctx, request.GetDryRun(), func(state *store.State) (*store.Change, error) {
			change, err := removal(state, seen, request)
			if err != nil {
				return nil, err
			}
			part := change
			left = len(change.Nodes)
			if n := oneChange(change.Nodes); n < len(change.Nodes) {
				part = &store.Change{Nodes: change.Nodes[:n]}
			}
			gone = part == change || request.GetDryRun()
			shown := part
			if request.GetDryRun() {
				shown = change
			}
			response.Plugin, response.Nodes = state.Plugins[request.GetName()], slices.Clone(before)
			for _, node := range shown.Nodes {
				response.Nodes = append(response.Nodes, node.GetId())
			}
			return part, nil
		})
		if err != nil {
			return nil, interrupted(err, request, len(before), left)
		}
		left -= len(response.GetNodes()) - len(before)
	}
	s.made(ctx, request.GetDryRun(), "plugin removed", "plugin", request.GetName(), "nodes", len(response.GetNodes()), "wipe", request.GetWipe())
	return response, nil
}

// interrupted is the error of a removal that ended when so many nodes had lost the plugin's roles, and so many others still have them.
func interrupted(err error, request *clusterv1.RemovePluginRequest, done, left int) error {
	if done == 0 || status.Code(err) == codes.NotFound { // NotFound: somebody else has removed the rest
		return err
	}
	return answer.Partly(err, fmt.Sprintf("of plugin %q %d nodes have lost the roles, and %d are left, with which the same command goes on", request.GetName(), done, left))
}

// What one change of nodes writes at most: one transaction takes 128 records of 1.25 MiB together, and more than those of the nodes are in it.
const (
	nodesPerChange = 100
	bytesPerChange = 512 << 10
)

// oneChange returns of how many nodes, from the first on, one change writes the records. The others are changed by the next one: whoever is interrupted in between asks again, and
// goes on where that was.
func oneChange(nodes []*clusterv1.NodeRecord) (n int) {
	for size := 0; n < min(len(nodes), nodesPerChange) && size < bytesPerChange; n++ {
		size += proto.Size(nodes[n])
	}
	return n
}

// removal returns the change that removes a plugin, with its roles from all nodes, if that may be done.
func removal(state, seen *store.State, request *clusterv1.RemovePluginRequest) (*store.Change, error) {
	plugin := state.Plugins[request.GetName()]
	if plugin == nil {
		return nil, noPlugin(state, request.GetName())
	}
	change := &store.Change{RemovedPlugins: []string{plugin.GetName()}}
	if request.GetWipe() {
		change.WipedUsers = rules.ConsensusUsers(plugin)
	}
	var users []string
	for _, id := range state.NodeIDs() {
		after, taken := withoutRoles(state.Nodes[id], rules.RolesOf(plugin), request.GetWipe())
		if len(taken) == 0 {
			continue
		}
		change.Nodes = append(change.Nodes, after)
		users = append(users, fmt.Sprintf("node %s (%s)", id, strings.Join(taken, ", ")))
	}
	if err := mayRemove(state, plugin, change, users, request.GetRemoveRoles()); err != nil {
		return nil, err
	}
	return change, curatorsStay(state, seen, plugin, change)
}

// mayRemove checks that a plugin may go, with its roles from the nodes that users lists.
func mayRemove(state *store.State, plugin *clusterv1.PluginRecord, change *store.Change, users []string, removeRoles bool) error {
	next := state.With(change)
	if lost := rules.Lost(state, next); len(lost) > 0 {
		return answer.Errorf(codes.FailedPrecondition, "plugin %q cannot be removed: no role that is assigned to a node would provide %s, without which the cluster cannot be managed",
			plugin.GetName(), strings.Join(lost, " and "))
	}
	if members := slices.DeleteFunc(state.NodeIDs(), func(id string) bool { return !memberBy(state, state.Nodes[id], rules.RolesOf(plugin)) }); len(members) > 0 {
		return answer.Errorf(codes.FailedPrecondition, "plugin %q cannot be removed: members of the consensus store run by it, on %s: take its role from these nodes first "+
			"(`reeve node role remove`), and wait until they have left", plugin.GetName(), few(members))
	}
	if len(users) > 0 && !removeRoles {
		return answer.Errorf(codes.FailedPrecondition, "plugin %q cannot be removed: nodes have roles of it: %s; take them from the nodes first, or with it (`reeve plugin remove %s --remove-roles`)",
			plugin.GetName(), few(users), plugin.GetName())
	}
	if violations := rules.Introduced(state, next); len(violations) > 0 {
		return answer.Errorf(codes.FailedPrecondition, "plugin %q cannot be removed: %s", plugin.GetName(), joined(violations))
	}
	return nil
}

// curatorsStay returns why a plugin may not go with its roles: no curator would be left that is known to run, as for the roles of each node.
func curatorsStay(state, seen *store.State, plugin *clusterv1.PluginRecord, change *store.Change) error {
	next := state.With(change)
	for _, node := range change.Nodes {
		if reasons := lastRunning(state, next, seen, node.GetId()); len(reasons) > 0 {
			return answer.Errorf(codes.FailedPrecondition, "plugin %q cannot be removed: %s", plugin.GetName(), strings.Join(reasons, "; "))
		}
	}
	return nil
}

// withoutRoles returns the record of a node without some roles, and which of them it had. If their data is to go as well, the record says so.
func withoutRoles(before *clusterv1.NodeRecord, roles []string, wipe bool) (after *clusterv1.NodeRecord, taken []string) {
	after = proto.CloneOf(before)
	after.Roles = slices.DeleteFunc(after.Roles, func(assignment *clusterv1.RoleAssignment) bool {
		if !slices.Contains(roles, assignment.GetRole()) {
			return false
		}
		taken = append(taken, assignment.GetRole())
		return true
	})
	after.Generation++
	if wipe {
		after.WipedRoles = wiped(after, taken...)
	}
	return after, taken
}

// wiped is the roles whose data a node removes, with some more, and without those that are assigned to it: sorted, each once.
func wiped(node *clusterv1.NodeRecord, more ...string) []string {
	all := slices.DeleteFunc(append(slices.Clone(node.GetWipedRoles()), more...), func(role string) bool { return assigned(node.GetRoles(), role) != nil })
	slices.Sort(all)
	return slices.Compact(all)
}

// few keeps a list in a message readable.
func few(items []string) string {
	const most = 10
	if len(items) <= most {
		return strings.Join(items, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(items[:most], ", "), len(items)-most)
}
