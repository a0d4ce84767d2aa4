package bootstrap

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	curatorv1 "github.com/reeveproject/reeve/plugins/curator/internal/reeve/curator/v1"
	"github.com/reeveproject/reeve/plugins/curator/internal/reports"
	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/proto/remit"
)

// genesis makes the first state of a cluster, without its CA, or an InvalidArgument with all that is wrong with the request.
func (s *Service) genesis(request *clusterv1.BootstrapRequest) (store.Genesis, error) {
	problems := form(request)
	if len(problems) > 0 {
		return store.Genesis{}, answer.Invalid(problems)
	}
	now := timestamppb.New(s.now())
	node := &clusterv1.NodeRecord{
		Id:         identity.NodeID(request.GetNodePublicKey()),
		PublicKey:  request.GetNodePublicKey(),
		State:      clusterv1.NodeState_NODE_STATE_UP,
		Labels:     request.GetLabels(),
		Generation: 1,
		Created:    now,
	}
	for _, role := range request.GetRoles() {
		node.Roles = append(node.Roles, &clusterv1.RoleAssignment{Role: role.GetRole(), Configuration: role.GetConfiguration(), Generation: 1})
	}
	slices.SortFunc(node.Roles, func(a, b *clusterv1.RoleAssignment) int { return cmp.Compare(a.GetRole(), b.GetRole()) })
	genesis := store.Genesis{
		Cluster: &curatorv1.Cluster{
			Format:             store.Format,
			ClusterId:          request.GetClusterId(),
			OwnerPublicKey:     request.GetOwnerPublicKey(),
			FirstNodePublicKey: request.GetNodePublicKey(),
			Created:            now,
		},
		Node: node,
	}
	if recipient := request.GetRecoveryRecipient(); recipient != "" {
		genesis.Policy = proto.CloneOf(genesis.State().Demands())
		genesis.Policy.RecoveryRecipient = recipient
	}
	for _, plugin := range request.GetPlugins() {
		record := proto.CloneOf(plugin)
		record.Generation, record.Added, record.Genesis = 1, now, true
		record.Decided = remit.Wanted(record.GetManifest())
		slices.SortFunc(record.Grants, func(a, b *clusterv1.RoleGrants) int { return cmp.Compare(a.GetRole(), b.GetRole()) })
		genesis.Plugins = append(genesis.Plugins, record)
	}
	problems = take(&genesis, request)
	return genesis, answer.Invalid(append(problems, fit(request, genesis)...))
}

// take takes the reports on the built-in plugins into the catalog. They are trusted as the digests beside them are: by who makes the cluster. That one key has signed all
// of them lets others who know the key find out the same.
func take(genesis *store.Genesis, request *clusterv1.BootstrapRequest) (problems rules.Problems) {
	if len(request.GetReports()) > 0 {
		problems = rules.PublicKey("reports_key", request.GetReportsKey())
	}
	if len(problems) > 0 {
		return problems
	}
	for i, envelope := range request.GetReports() {
		refuse := func(message string) {
			problems = append(problems, rules.Problem{Field: fmt.Sprintf("reports[%d]", i), Message: message})
		}
		report, err := reports.TakeBuiltIn(request.GetReportsKey(), envelope, genesis.Cluster.GetCreated().AsTime())
		if err != nil {
			refuse(err.Error())
			continue
		}
		n := slices.IndexFunc(genesis.Plugins, func(plugin *clusterv1.PluginRecord) bool {
			return slices.Contains(reports.Digests(plugin), report.GetDigest())
		})
		if n < 0 {
			refuse(fmt.Sprintf("it is on the executable %s, which is not among the plugins", report.GetDigest()))
			continue
		}
		plugin := genesis.Plugins[n]
		if fresh, err := reports.Put(plugin, report); err != nil || !fresh || len(plugin.GetReports()) > len(plugin.GetDigests()) {
			refuse(fmt.Sprintf("there is another report on the executable %s", report.GetDigest()))
			continue
		}
		genesis.Reports = append(genesis.Reports, store.Report{Plugin: plugin.GetName(), Digest: report.GetDigest(), Envelope: envelope})
	}
	return problems
}

// form checks the parts of a request by themselves.
func form(request *clusterv1.BootstrapRequest) rules.Problems {
	problems := rules.ClusterID("cluster_id", request.GetClusterId())
	problems = append(problems, rules.PublicKey("node_public_key", request.GetNodePublicKey())...)
	problems = append(problems, rules.PublicKey("owner_public_key", request.GetOwnerPublicKey())...)
	if len(request.GetOwnerPublicKey()) > 0 && bytes.Equal(request.GetOwnerPublicKey(), request.GetNodePublicKey()) {
		problems = append(problems, rules.Problem{Field: "owner_public_key", Message: "it is the node's key: the owner needs a key of its own"})
	}
	problems = append(problems, rules.Recipient("recovery_recipient", request.GetRecoveryRecipient())...)
	problems = append(problems, rules.Labels("labels", request.GetLabels())...)
	problems = append(problems, rules.Assignments("roles", request.GetRoles())...)
	if n := len(request.GetPlugins()); n > rules.MaxPlugins {
		return append(problems, rules.Problem{Field: "plugins", Message: fmt.Sprintf("there are %d plugins, a catalog holds at most %d", n, rules.MaxPlugins)})
	}
	for i, plugin := range request.GetPlugins() {
		at := fmt.Sprintf("plugins[%d]", i)
		problems = append(problems, rules.Plugin(at, plugin)...)
		for _, other := range request.GetPlugins()[:i] {
			if other.GetName() == plugin.GetName() {
				problems = append(problems, rules.Problem{Field: at + ".name", Message: fmt.Sprintf("the plugin %q is listed twice", plugin.GetName())})
			}
		}
		for _, conflict := range rules.Conflicts(request.GetPlugins()[:i], plugin.GetManifest()) {
			problems = append(problems, rules.Problem{Field: at + ".manifest", Message: conflict.String() + " already: leave one of them out"})
		}
	}
	return problems
}

// fit checks the parts together, by the rules that every later change is under.
func fit(request *clusterv1.BootstrapRequest, genesis store.Genesis) (problems rules.Problems) {
	state := genesis.State()
	for _, violation := range rules.Violations(state) {
		problems = append(problems, rules.Problem{Field: "roles", Message: violation.String()})
	}
	for i, assignment := range request.GetRoles() {
		if role, _ := state.Role(assignment.GetRole()); role != nil {
			problems = append(problems, rules.Configuration(fmt.Sprintf("roles[%d].configuration", i), assignment.GetConfiguration(), role)...)
		}
	}
	for _, capability := range rules.Lacking(state) {
		problems = append(problems, rules.Problem{Field: "roles", Message: fmt.Sprintf("none of the node's roles provides %s, without which there is no cluster", capability)})
	}
	if size := proto.Size(genesis.Node); size > rules.MaxNode {
		problems = append(problems, rules.Problem{Field: "roles", Message: fmt.Sprintf("the record of the node has %d bytes, at most %d fit", size, rules.MaxNode)})
	}
	return problems
}
