package management

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/catalog"
	"github.com/reeveproject/reeve/plugins/curator/internal/reports"
	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// AddPlugin implements clusterv1.ManagementServiceServer.
func (s *Service) AddPlugin(ctx context.Context, request *clusterv1.AddPluginRequest) (*clusterv1.AddPluginResponse, error) {
	manifest := request.GetManifest()
	problems := rules.Manifest("manifest", manifest)
	problems = append(problems, rules.Digests("digests", request.GetDigests())...)
	problems = append(problems, rules.Grants("grants", manifest, request.GetGrants())...)
	if !request.GetApprove() && len(request.GetGrants()) > 0 {
		problems = append(problems, rules.Problem{Field: "grants", Message: "they are what is granted when a version is approved, and this call does not approve it: " +
			"set approve, or leave them out"})
	}
	if n := len(request.GetReports()); n > rules.MaxReports {
		problems = append(problems, rules.Problem{Field: "reports", Message: fmt.Sprintf("there are %d, a plugin has one for each of at most %d platforms", n, rules.MaxReports)})
	}
	if err := answer.Invalid(problems); err != nil {
		return nil, err
	}
	offered := &clusterv1.PluginVersion{
		Version: manifest.GetVersion(), Digests: request.GetDigests(), Manifest: manifest, Added: timestamppb.New(s.config.Now()),
	}
	next := s.catalog()
	plugin, err := s.changePlugin(ctx, request.GetDryRun(), manifest.GetName(), func(state *store.State, before *clusterv1.PluginRecord) (*proposal, error) {
		proposed := &proposal{record: next.Offer(before, offered), manifest: manifest}
		if request.GetApprove() {
			proposed.record = next.Approve(before, offered, withUsers(manifest, request.GetGrants()))
		}
		for n, envelope := range request.GetReports() {
			if err := s.report(state, proposed, fmt.Sprintf("reports[%d]", n), request.GetDigests(), envelope); err != nil {
				return nil, err
			}
		}
		return proposed, nil
	})
	if err != nil {
		return nil, err
	}
	s.made(ctx, request.GetDryRun(), "plugin added", "plugin", plugin.GetName(), "version", manifest.GetVersion(),
		"waits", catalog.Same(plugin.GetWaiting(), offered), "reports", len(request.GetReports()), "generation", plugin.GetGeneration())
	return &clusterv1.AddPluginResponse{Plugin: plugin}, nil
}

// ListPlugins implements clusterv1.ManagementServiceServer.
func (s *Service) ListPlugins(ctx context.Context, _ *clusterv1.ListPluginsRequest) (*clusterv1.ListPluginsResponse, error) {
	state, err := s.config.Store.ReadRecords(ctx)
	if err != nil {
		return nil, err
	}
	response := &clusterv1.ListPluginsResponse{}
	for _, plugin := range state.Catalog() {
		response.Plugins = append(response.Plugins, reports.Answer(state, plugin))
	}
	return response, nil
}

// catalog makes records by what the nodes say of the versions that they run. What they say decides nothing about what may run: only to which of two
// versions, both of which the owner approved, nodes go back.
func (s *Service) catalog() catalog.Catalog {
	return catalog.Catalog{Failed: func(plugin *clusterv1.PluginRecord) bool {
		snapshot, ok := s.config.Snapshots.Get()
		if !ok {
			return false
		}
		isOf := func(digest string) bool {
			return digest != "" && slices.Contains(slices.Collect(maps.Values(plugin.GetDigests())), digest)
		}
		failed := false
		for id, status := range snapshot.Statuses {
			if !isMember(snapshot.State, id) {
				continue // what it ran is nobody's to go back from
			}
			for _, instance := range status.GetInstances() {
				if instance.GetPlugin() != plugin.GetName() {
					continue
				}
				if works(instance.GetState()) && isOf(instance.GetDigest()) {
					return false
				}
				failed = failed || isOf(instance.GetRolledBack().GetDigest())
			}
		}
		return failed
	}}
}

func works(state hostv1.InstanceState) bool {
	return state == hostv1.InstanceState_INSTANCE_STATE_READY || state == hostv1.InstanceState_INSTANCE_STATE_DEGRADED
}

// proposal is another record for a plugin.
type proposal struct {
	// record is without its generation.
	record *clusterv1.PluginRecord
	// manifest is the one that it brings in, whether that then runs or waits; nil: none.
	manifest *rolev1.Manifest
	// reports are the signed reports that it brings in.
	reports []store.Report
}

// changePlugin makes one management write that puts another record in the place of a plugin's, under the rules that every change of the catalog is
// under. The record before is nil if there is none. It returns the record as it then is.
func (s *Service) changePlugin(
	ctx context.Context, dryRun bool, name string,
	decide func(state *store.State, before *clusterv1.PluginRecord) (*proposal, error),
) (*clusterv1.PluginRecord, error) {
	state, err := s.change(ctx, dryRun, func(state *store.State) (*store.Change, error) {
		before := state.Plugins[name]
		proposed, err := decide(state, before)
		if err != nil {
			return nil, err
		}
		after, manifest := proposed.record, proposed.manifest
		if before != nil && proto.Equal(before, after) {
			return nil, nil
		}
		after.Generation++
		if manifest != nil {
			if err := mayOffer(state, manifest); err != nil {
				return nil, err
			}
		}
		if after, err = fitting(state, after); err != nil {
			return nil, err
		}
		reports.Prune(after)
		change := &store.Change{Plugins: []*clusterv1.PluginRecord{after}, Reports: proposed.reports}
		if err := mayTakePlace(state, after, manifest); err != nil {
			return nil, err
		}
		return change, proven(state, state.With(change))
	})
	if err != nil {
		return nil, err
	}
	return reports.Answer(state, state.Plugins[name]), nil
}

// mayOffer checks that the names and capabilities of a manifest are its plugin's to have.
func mayOffer(state *store.State, manifest *rolev1.Manifest) error {
	if conflicts := rules.Conflicts(state.Catalog(), manifest); len(conflicts) > 0 {
		all := joined(conflicts)
		return answer.Veiled(codes.AlreadyExists, all, "plugin %q cannot be added: %s; build it with other names", manifest.GetName(), all)
	}
	if usurpations := rules.Usurpations(state.Catalog(), manifest); len(usurpations) > 0 {
		return answer.Veiled(codes.FailedPrecondition, "the plugin claims a capability that only plugins which the cluster was made with may provide",
			"plugin %q cannot be added: %s; only a plugin that the cluster was made with may, or a new version of it: "+
				"build it without that capability", manifest.GetName(), joined(usurpations))
	}
	return nil
}

// fitting returns the record as it fits into the catalog. To have something to go back to is worth less than to go on.
func fitting(state *store.State, after *clusterv1.PluginRecord) (*clusterv1.PluginRecord, error) {
	if state.Plugins[after.GetName()] == nil && len(state.Plugins) >= rules.MaxPlugins {
		return nil, answer.Errorf(codes.ResourceExhausted, "the catalog holds %d plugins already, which is all that fit", rules.MaxPlugins)
	}
	if err := answer.Invalid(digests(after)); err != nil {
		return nil, err
	}
	if proto.Size(after) > rules.MaxPlugin && !proto.Equal(after.GetPrevious(), state.Plugins[after.GetName()].GetPrevious()) {
		after.Previous = nil
	}
	if size := proto.Size(after); size > rules.MaxPlugin {
		return nil, answer.Veiled(codes.InvalidArgument, fmt.Sprintf("the record would have %d bytes, at most %d fit", size, rules.MaxPlugin),
			"the record of plugin %s would have %d bytes, at most %d fit: approve the version at once, or make its schemas smaller", after.GetName(), size, rules.MaxPlugin)
	}
	all := proto.Size(after)
	for name, plugin := range state.Plugins {
		if name != after.GetName() {
			all += proto.Size(plugin)
		}
	}
	if all > rules.MaxCatalog {
		return nil, answer.Errorf(codes.ResourceExhausted, "the catalog would have %d bytes, at most %d fit: remove plugins that nobody needs (`reeve plugin remove NAME`)",
			all, rules.MaxCatalog)
	}
	return after, nil
}

// digests checks those of a record that are made of several requests.
func digests(plugin *clusterv1.PluginRecord) (problems rules.Problems) {
	if catalog.Running(plugin) != nil {
		problems = rules.Digests("digests", plugin.GetDigests())
	}
	if plugin.GetWaiting() != nil {
		problems = append(problems, rules.Digests("digests", plugin.GetWaiting().GetDigests())...)
	}
	return problems
}

// mayTakePlace checks that the nodes and the cluster can go on with a record: with the version that runs, or with the one that a manifest brings in, which
// is not to wait for an approval that would be refused.
func mayTakePlace(state *store.State, after *clusterv1.PluginRecord, manifest *rolev1.Manifest) error {
	known := rules.WithheldOf(state.Plugins[after.GetName()])
	withheld := slices.DeleteFunc(rules.WithheldOf(after), func(w rules.Withheld) bool { return slices.Contains(known, w) })
	if len(withheld) > 0 {
		return answer.Veiled(codes.FailedPrecondition, "a role without which the cluster cannot be managed must be granted all that it asks for",
			"%s: grant it, or nobody could set it right again", joined(withheld))
	}
	trial := proto.CloneOf(after)
	if manifest != nil {
		trial.Version, trial.Manifest = manifest.GetVersion(), manifest
	}
	next := state.With(&store.Change{Plugins: []*clusterv1.PluginRecord{trial}})
	what := fmt.Sprintf("version %s of plugin %q cannot take the place of version %s", trial.GetVersion(), trial.GetName(), state.Plugins[trial.GetName()].GetVersion())
	if lost := rules.Lost(state, next); len(lost) > 0 {
		return answer.Veiled(codes.FailedPrecondition, "no role that is assigned to a node would provide "+strings.Join(lost, " and "),
			"%s: no role that is assigned to a node would provide %s, without which the cluster cannot be managed",
			what, strings.Join(lost, " and "))
	}
	if violations := rules.Introduced(state, next); len(violations) > 0 {
		return answer.Veiled(codes.FailedPrecondition, "roles that are assigned to nodes could not run with that version of the plugin",
			"%s: %s; take the role from the node first (`reeve node role remove NODE ROLE`)", what, joined(violations))
	}
	return nil
}

// withUsers is what is granted to the roles of a manifest when its version is added and approved at once: the ConsensusUsers that they declare, and
// what is listed.
func withUsers(manifest *rolev1.Manifest, listed []*clusterv1.RoleGrants) []*clusterv1.RoleGrants {
	var all []*clusterv1.RoleGrants
	for _, role := range manifest.GetRoles() {
		grants := &clusterv1.RoleGrants{Role: role.GetName(), ConsensusUser: role.GetConsensusUser()}
		for _, of := range listed {
			if of.GetRole() == role.GetName() {
				grants.Grants = of.GetGrants()
			}
		}
		all = append(all, grants)
	}
	return all
}

// noPlugin says that the catalog does not know a plugin.
func noPlugin(state *store.State, name string) error {
	known := "the catalog is empty"
	if names := state.PluginNames(); len(names) > 0 {
		known = "its plugins are " + strings.Join(names, ", ")
	}
	return answer.Errorf(codes.NotFound, "the catalog has no plugin %s; %s", quote(name), known)
}

func joined[T fmt.Stringer](items []T) string {
	var texts []string
	for _, item := range items {
		texts = append(texts, item.String())
	}
	return strings.Join(texts, "; ")
}

// quoted is the digests of a request for a message.
func quoted(digests map[string]string) string { return quote(spelled(digests)) }

// spelled is the digests of a version for a message.
func spelled(digests map[string]string) string {
	var texts []string
	for _, platform := range slices.Sorted(maps.Keys(digests)) {
		texts = append(texts, platform+" "+digests[platform])
	}
	return strings.Join(texts, ", ")
}
