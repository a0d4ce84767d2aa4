package management

import (
	"context"
	"maps"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/catalog"
	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// ApprovePlugin implements clusterv1.ManagementServiceServer.
func (s *Service) ApprovePlugin(ctx context.Context, request *clusterv1.ApprovePluginRequest) (*clusterv1.ApprovePluginResponse, error) {
	if err := answer.Invalid(rules.PluginName("name", request.GetName())); err != nil {
		return nil, err
	}
	next := s.catalog()
	plugin, err := s.changePlugin(ctx, request.GetDryRun(), request.GetName(), func(state *store.State, before *clusterv1.PluginRecord) (*proposal, error) {
		if before == nil {
			return nil, noPlugin(state, request.GetName())
		}
		waiting := before.GetWaiting()
		if running := catalog.Running(before); waiting == nil && meant(running, request) {
			// The call is made again, since its answer was lost, unless it is to grant other things.
			if again := next.Approve(before, running, request.GetGrants()); proto.Equal(again, before) {
				return &proposal{record: again}, nil
			}
		}
		if waiting == nil {
			return nil, answer.Errorf(codes.FailedPrecondition, "no version of plugin %q waits for approval; version %s runs: what it is granted is changed with "+
				"`reeve plugin grant` and `reeve plugin withdraw`", before.GetName(), before.GetVersion())
		}
		if !meant(waiting, request) {
			return nil, answer.Errorf(codes.Aborted, "what waits for approval is version %s of plugin %q with the digests %s, not version %s with %s: "+
				"look at it again (`reeve plugin diff %s`) and decide anew", waiting.GetVersion(), before.GetName(), spelled(waiting.GetDigests()),
				quote(request.GetVersion()), quoted(request.GetDigests()), before.GetName())
		}
		if err := answer.Invalid(rules.Grants("grants", waiting.GetManifest(), request.GetGrants())); err != nil {
			return nil, err
		}
		return &proposal{record: next.Approve(before, waiting, request.GetGrants()), manifest: waiting.GetManifest()}, nil
	})
	if err != nil {
		return nil, err
	}
	s.made(ctx, request.GetDryRun(), "plugin approved", "plugin", plugin.GetName(), "version", plugin.GetVersion(), "generation", plugin.GetGeneration())
	return &clusterv1.ApprovePluginResponse{Plugin: plugin}, nil
}

// meant reports whether a version is the one that a request to approve one is about.
func meant(version *clusterv1.PluginVersion, request *clusterv1.ApprovePluginRequest) bool {
	return version != nil && version.GetVersion() == request.GetVersion() && maps.Equal(version.GetDigests(), request.GetDigests())
}

// SetGrants implements clusterv1.ManagementServiceServer.
func (s *Service) SetGrants(ctx context.Context, request *clusterv1.SetGrantsRequest) (*clusterv1.SetGrantsResponse, error) {
	problems := rules.PluginName("plugin", request.GetPlugin())
	problems = append(problems, rules.RoleName("grants.role", request.GetGrants().GetRole())...)
	if err := answer.Invalid(problems); err != nil {
		return nil, err
	}
	plugin, err := s.changePlugin(ctx, request.GetDryRun(), request.GetPlugin(), func(state *store.State, before *clusterv1.PluginRecord) (*proposal, error) {
		if before == nil {
			return nil, noPlugin(state, request.GetPlugin())
		}
		if expected := request.GetExpectedGeneration(); expected != 0 && expected != before.GetGeneration() {
			return nil, answer.Errorf(codes.Aborted, "the record of plugin %q has generation %d, not %d: somebody changed it; read it again and decide anew",
				before.GetName(), before.GetGeneration(), expected)
		}
		if catalog.Running(before) == nil {
			return nil, answer.Errorf(codes.FailedPrecondition, "plugin %q waits for approval, and is granted what it gets by that: `reeve plugin approve %s`",
				before.GetName(), before.GetName())
		}
		unfit := rules.RoleGrants("grants", before.GetManifest(), request.GetGrants())
		if len(unfit) > 0 && before.GetWaiting() != nil && len(rules.RoleGrants("grants", before.GetWaiting().GetManifest(), request.GetGrants())) == 0 {
			return nil, answer.Errorf(codes.FailedPrecondition, "only version %s of plugin %q asks for that, which waits for approval: it is granted by `reeve plugin approve %s`",
				before.GetWaiting().GetVersion(), before.GetName(), before.GetName())
		}
		if err := answer.Invalid(unfit); err != nil {
			return nil, err
		}
		return &proposal{record: catalog.Grant(before, request.GetGrants())}, nil
	})
	if err != nil {
		return nil, err
	}
	s.made(ctx, request.GetDryRun(), "grants set", "plugin", plugin.GetName(), "role", request.GetGrants().GetRole(), "generation", plugin.GetGeneration())
	return &clusterv1.SetGrantsResponse{Plugin: plugin}, nil
}
