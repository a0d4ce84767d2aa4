package bootstrap

import (
	"bytes"
	"context"
	"encoding/hex"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/audit"
	"github.com/reeveproject/reeve/plugins/curator/internal/catalog"
	"github.com/reeveproject/reeve/plugins/curator/internal/reports"
	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/proto/remit"
)

// Restore implements clusterv1.BootstrapServiceServer. A node that is in the cluster already, with its key, is no error, so that the call can be repeated when its answer was lost.
func (s *Service) Restore(ctx context.Context, request *clusterv1.RestoreRequest) (*clusterv1.RestoreResponse, error) {
	asked := request.GetNode()
	genesis, err := s.genesis(asked)
	if err != nil {
		return nil, err
	}
	open, err := s.wait(ctx)
	if err != nil {
		return nil, err
	}
	var answered *clusterv1.BootstrapResponse
	err = open.audit.Do(ctx, clusterv1.BootstrapService_Restore_FullMethodName, request, func(ctx context.Context) error {
		for {
			state, err := open.store.Update(ctx, audit.CallOf(ctx), func(state *store.State) (*store.Change, error) { return restore(state, genesis) })
			if err != nil {
				return answer.Error(err)
			}
			if state.Nodes[genesis.Node.GetId()] != nil {
				answered, err = s.answer(ctx, open.store, state, genesis)
				return answer.Error(err)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return &clusterv1.RestoreResponse{CaCertificates: answered.GetCaCertificates(), NodeSvid: answered.GetNodeSvid()}, nil
}

// restore takes the node of a genesis into the cluster of a restored store: with the plugins that its machine brings, and as its own word has it. Where that takes more than one change, it returns the next one.
func restore(state *store.State, genesis store.Genesis) (*store.Change, error) {
	id := genesis.Node.GetId()
	switch owner := state.Cluster.GetOwnerPublicKey(); {
	case state.Cluster.GetClusterId() != genesis.Cluster.GetClusterId():
		return nil, answer.Errorf(codes.FailedPrecondition, "the snapshot holds cluster %s, and the node was to restore cluster %s: empty the node's directories, and run `reeved restore` again with a snapshot of that one",
			state.Cluster.GetClusterId(), genesis.Cluster.GetClusterId())
	case !bytes.Equal(owner, genesis.Cluster.GetOwnerPublicKey()):
		return nil, answer.Errorf(codes.FailedPrecondition, "the owner key of the cluster in the snapshot is %s…, and bootstrap.owner_public_key in the parameters is %s…: "+
			"put the cluster's there, empty the node's directories, and run `reeved restore` again", hex.EncodeToString(owner[:8]), hex.EncodeToString(genesis.Cluster.GetOwnerPublicKey()[:8]))
	case state.Nodes[id] != nil:
		return nil, nil
	}
	change := &store.Change{Nodes: []*clusterv1.NodeRecord{genesis.Node}}
	kept := keepRoles(state)
	if len(kept) > keptAtOnce {
		return &store.Change{Nodes: kept[:keptAtOnce]}, nil
	}
	change.Nodes = append(change.Nodes, kept...)
	for _, plugin := range genesis.Plugins {
		if conflicts := rules.Conflicts(state.Catalog(), plugin.GetManifest()); len(conflicts) > 0 {
			return nil, answer.Errorf(codes.FailedPrecondition, "the built-in plugin %s of this machine does not fit into the catalog of the snapshot: %s", plugin.GetName(), conflicts[0])
		}
		before := state.Plugins[plugin.GetName()]
		after := merged(before, plugin)
		if after == nil {
			continue
		}
		change.Plugins = append(change.Plugins, after)
		for _, report := range genesis.Reports {
			of := func(record *clusterv1.PluginRecord) *clusterv1.ConformanceReport {
				n := slices.IndexFunc(record.GetReports(), func(other *clusterv1.ConformanceReport) bool { return other.GetDigest() == report.Digest })
				if n < 0 {
					return nil
				}
				return record.GetReports()[n]
			}
			if report.Plugin == plugin.GetName() && !proto.Equal(of(after), of(before)) {
				change.Reports = append(change.Reports, report)
			}
		}
	}
	if violations := rules.Introduced(state, state.With(change)); len(violations) > 0 {
		var all []string
		for _, violation := range violations {
			all = append(all, violation.String())
		}
		return nil, answer.Errorf(codes.FailedPrecondition, "the node's roles and the plugins of its machine do not fit into the cluster of the snapshot: %s", strings.Join(all, "; "))
	}
	return change, nil
}

// keptAtOnce is how many nodes' records one transaction takes beside what the node brings.
const keptAtOnce = 64

// keepRoles returns the records of the nodes that were to delete the data of roles, without that. Such a role may have been assigned again since the snapshot was taken: then the data is newer, and nobody
// has asked for its end.
func keepRoles(state *store.State) (nodes []*clusterv1.NodeRecord) {
	for _, node := range state.Nodes {
		if len(node.GetWipedRoles()) > 0 && node.GetState() != clusterv1.NodeState_NODE_STATE_DECOMMISSIONED {
			after := proto.CloneOf(node)
			after.WipedRoles = nil
			after.Generation++
			nodes = append(nodes, after)
		}
	}
	return nodes
}

// merged returns the record of a plugin after a machine has brought its own build of it; nil: it stays as it is. The machine has no other build, so its own runs. Former nodes that have only the build of
// the catalog go on with that as the previous one.
func merged(before, brought *clusterv1.PluginRecord) *clusterv1.PluginRecord {
	if before == nil {
		return brought
	}
	offered := catalog.Running(brought)
	same := catalog.Same(catalog.Running(before), offered)
	after := proto.CloneOf(before)
	if same {
		maps.Copy(after.Digests, brought.GetDigests())
	} else {
		after = catalog.Catalog{}.Approve(before, offered, granted(before, brought))
	}
	if same && len(after.GetDigests()) == len(before.GetDigests()) {
		return nil
	}
	for _, report := range brought.GetReports() {
		_, _ = reports.Put(after, report) // one on a later run stays
	}
	reports.Prune(after)
	after.Generation++
	return after
}

// granted returns what another build is granted: what the owner has decided stays so, and what the build asks for besides is as the machine that brings it has it.
func granted(before, brought *clusterv1.PluginRecord) []*clusterv1.RoleGrants {
	all := remit.Kept(before.GetManifest(), before.GetGrants(), brought.GetManifest())
	beyond := remit.Beyond(brought.GetManifest(), before.GetDecided(), before.GetGrants())
	for _, role := range all {
		more, own := remit.ForRole(beyond, role.GetRole()), remit.ForRole(brought.GetGrants(), role.GetRole())
		if more.GetConsensusUser() != "" {
			role.ConsensusUser = own.GetConsensusUser()
		}
		decided := slices.ContainsFunc(before.GetDecided(), func(of *clusterv1.RoleGrants) bool { return of.GetRole() == role.GetRole() })
		for _, grant := range own.GetGrants() {
			if !remit.Has(role.GetGrants(), grant) && (!decided || remit.Has(more.GetGrants(), grant)) {
				role.Grants = append(role.Grants, grant)
			}
		}
	}
	return all
}
