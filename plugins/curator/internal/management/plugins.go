package management

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// AddPlugin implements clusterv1.ManagementServiceServer.
func (s *Service) AddPlugin(ctx context.Context, request *clusterv1.AddPluginRequest) (*clusterv1.AddPluginResponse, error) {
	record := &clusterv1.PluginRecord{
		Name:     request.GetManifest().GetName(),
		Version:  request.GetManifest().GetVersion(),
		Digests:  request.GetDigests(),
		Manifest: request.GetManifest(),
	}
	problems := rules.Manifest("manifest", request.GetManifest())
	problems = append(problems, rules.Digests("digests", request.GetDigests())...)
	problems = append(problems, rules.Grants("grants", request.GetManifest(), request.GetGrants())...)
	if err := answer.Invalid(problems); err != nil {
		return nil, err
	}
	record.Grants = granted(request)
	if size := proto.Size(record); size > rules.MaxPlugin {
		return nil, answer.Veiled(codes.InvalidArgument, fmt.Sprintf("the record would have %d bytes, at most %d fit", size, rules.MaxPlugin),
			"the record of plugin %s would have %d bytes, at most %d fit: make its schemas smaller", record.GetName(), size, rules.MaxPlugin)
	}
	state, err := s.change(ctx, request.GetDryRun(), func(state *store.State) (*store.Change, error) {
		return s.addPlugin(state, record)
	})
	if err != nil {
		return nil, err
	}
	added := state.Plugins[record.GetName()]
	s.made(ctx, request.GetDryRun(), "plugin added", "plugin", added.GetName(), "version", added.GetVersion(), "generation", added.GetGeneration())
	return &clusterv1.AddPluginResponse{Plugin: added}, nil
}

func (s *Service) addPlugin(state *store.State, record *clusterv1.PluginRecord) (*store.Change, error) {
	if conflicts := rules.Conflicts(state.Catalog(), record.GetManifest()); len(conflicts) > 0 {
		var sentences []string
		for _, conflict := range conflicts {
			sentences = append(sentences, conflict.String())
		}
		return nil, answer.Veiled(codes.AlreadyExists, strings.Join(sentences, "; "), "plugin %q cannot be added: %s; build it with other names", record.GetName(), strings.Join(sentences, "; "))
	}
	if usurpations := rules.Usurpations(state.Catalog(), record.GetManifest()); len(usurpations) > 0 {
		var sentences []string
		for _, usurpation := range usurpations {
			sentences = append(sentences, usurpation.String())
		}
		return nil, answer.Veiled(codes.FailedPrecondition, "the plugin claims a capability that only plugins which the cluster was made with may provide",
			"plugin %q cannot be added: %s; only a plugin that the cluster was made with may, or a new version of it: "+
				"build it without that capability", record.GetName(), strings.Join(sentences, "; "))
	}
	before := state.Plugins[record.GetName()]
	if before == nil && len(state.Plugins) >= rules.MaxPlugins {
		return nil, answer.Errorf(codes.ResourceExhausted, "the catalog holds %d plugins already, which is all that fit", rules.MaxPlugins)
	}
	after := proto.CloneOf(record)
	after.Generation, after.Added = before.GetGeneration(), before.GetAdded()
	if before != nil && proto.Equal(before, after) {
		return nil, nil
	}
	after.Generation++
	after.Added = timestamppb.New(s.config.Now())
	change := &store.Change{Plugins: []*clusterv1.PluginRecord{after}}
	next := state.With(change)
	what := fmt.Sprintf("version %s of plugin %q cannot take the place of version %s", after.GetVersion(), after.GetName(), before.GetVersion())
	if lost := rules.Lost(state, next); len(lost) > 0 {
		return nil, answer.Veiled(codes.FailedPrecondition, "no role that is assigned to a node would provide "+strings.Join(lost, " and "),
			"%s: no role that is assigned to a node would provide %s, without which the cluster cannot be managed",
			what, strings.Join(lost, " and "))
	}
	if violations := rules.Introduced(state, next); len(violations) > 0 {
		var sentences []string
		for _, violation := range violations {
			sentences = append(sentences, violation.String())
		}
		return nil, answer.Veiled(codes.FailedPrecondition, "roles that are assigned to nodes could not run with that version of the plugin",
			"%s: %s; take the role from the node first (`reeve node role remove NODE ROLE`)", what, strings.Join(sentences, "; "))
	}
	return change, nil
}

// granted is what the owner's call grants to the roles of a plugin, in the order of its manifest: the ConsensusUsers that they declare, and what
// the request lists.
func granted(request *clusterv1.AddPluginRequest) []*clusterv1.RoleGrants {
	var all []*clusterv1.RoleGrants
	for _, role := range request.GetManifest().GetRoles() {
		grants := &clusterv1.RoleGrants{Role: role.GetName(), ConsensusUser: role.GetConsensusUser()}
		for _, listed := range request.GetGrants() {
			if listed.GetRole() == role.GetName() {
				grants.Grants = listed.GetGrants()
			}
		}
		if grants.GetConsensusUser() != "" || len(grants.GetGrants()) > 0 {
			all = append(all, grants)
		}
	}
	return all
}
