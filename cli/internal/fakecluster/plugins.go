package fakecluster

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/proto/remit"
)

// waiting is the plugin of which a version waits that offers a role; empty: there is none.
func (c *Cluster) waiting(role string) string {
	for _, plugin := range c.plugins {
		if slices.ContainsFunc(plugin.GetWaiting().GetManifest().GetRoles(), func(offered *rolev1.RoleManifest) bool { return offered.GetName() == role }) {
			return plugin.GetName()
		}
	}
	return ""
}

// offered is the role of the catalog that has a name; nil: none has.
func (c *Cluster) offered(role string) *rolev1.RoleManifest {
	for _, plugin := range c.plugins {
		for _, offered := range plugin.GetManifest().GetRoles() {
			if offered.GetName() == role {
				return offered
			}
		}
	}
	return nil
}

// changePlugin has change make another record of a plugin, in place of the one that there is; nil: it is removed.
func (m *management) changePlugin(name string, dryRun bool, change func(*clusterv1.PluginRecord) (*clusterv1.PluginRecord, error)) (*clusterv1.PluginRecord, error) {
	c := m.cluster
	i := slices.IndexFunc(c.plugins, func(plugin *clusterv1.PluginRecord) bool { return plugin.GetName() == name })
	var before *clusterv1.PluginRecord
	if i >= 0 {
		before = proto.CloneOf(c.plugins[i])
	}
	after, err := change(before)
	switch {
	case err != nil || dryRun:
	case after == nil:
		c.plugins = slices.Delete(c.plugins, i, i+1)
	case i < 0:
		c.plugins = append(c.plugins, after)
	default:
		c.plugins[i] = after
	}
	return after, err
}

func (m *management) AddPlugin(_ context.Context, request *clusterv1.AddPluginRequest) (*clusterv1.AddPluginResponse, error) {
	manifest := request.GetManifest()
	after, err := m.changePlugin(manifest.GetName(), request.GetDryRun(), func(record *clusterv1.PluginRecord) (*clusterv1.PluginRecord, error) {
		if record == nil {
			record = &clusterv1.PluginRecord{Name: manifest.GetName()}
		}
		version := &clusterv1.PluginVersion{Version: manifest.GetVersion(), Digests: request.GetDigests(), Manifest: manifest, Added: timestamppb.New(Began)}
		beyond := remit.Beyond(manifest, record.GetDecided(), record.GetGrants())
		switch {
		case request.GetApprove():
			var granted []*clusterv1.RoleGrants
			for _, role := range manifest.GetRoles() {
				of := proto.CloneOf(remit.ForRole(request.GetGrants(), role.GetName()))
				of.ConsensusUser = role.GetConsensusUser()
				granted = append(granted, of)
			}
			install(record, version, granted)
		case len(beyond) == 0:
			install(record, version, record.GetGrants())
		default:
			record.Waiting = version
		}
		for _, envelope := range request.GetReports() {
			if err := m.report(record, envelope); err != nil {
				return nil, err
			}
		}
		record.Generation++
		return record, nil
	})
	return &clusterv1.AddPluginResponse{Plugin: after}, err
}

// install has a version take the place of the one that runs.
func install(record *clusterv1.PluginRecord, version *clusterv1.PluginVersion, granted []*clusterv1.RoleGrants) {
	if record.GetVersion() != "" {
		record.Previous = &clusterv1.PluginVersion{Version: record.GetVersion(), Digests: record.GetDigests(), Manifest: record.GetManifest(), Added: record.GetAdded()}
	}
	record.Version, record.Digests, record.Manifest, record.Added = version.GetVersion(), version.GetDigests(), version.GetManifest(), version.GetAdded()
	record.Waiting, record.Decided, record.Grants = nil, remit.Wanted(version.GetManifest()), granted
}

func (m *management) ApprovePlugin(_ context.Context, request *clusterv1.ApprovePluginRequest) (*clusterv1.ApprovePluginResponse, error) {
	after, err := m.changePlugin(request.GetName(), request.GetDryRun(), func(record *clusterv1.PluginRecord) (*clusterv1.PluginRecord, error) {
		install(record, record.GetWaiting(), request.GetGrants())
		record.Generation++
		return record, nil
	})
	return &clusterv1.ApprovePluginResponse{Plugin: after}, err
}

func (m *management) SetGrants(_ context.Context, request *clusterv1.SetGrantsRequest) (*clusterv1.SetGrantsResponse, error) {
	after, err := m.changePlugin(request.GetPlugin(), request.GetDryRun(), func(record *clusterv1.PluginRecord) (*clusterv1.PluginRecord, error) {
		record.Grants = slices.DeleteFunc(record.GetGrants(), func(of *clusterv1.RoleGrants) bool { return of.GetRole() == request.GetGrants().GetRole() })
		record.Grants = append(record.Grants, request.GetGrants())
		record.Generation++
		return record, nil
	})
	return &clusterv1.SetGrantsResponse{Plugin: after}, err
}

func (m *management) RemovePlugin(_ context.Context, request *clusterv1.RemovePluginRequest) (*clusterv1.RemovePluginResponse, error) {
	var removed *clusterv1.PluginRecord
	var nodes, roles []string
	_, err := m.changePlugin(request.GetName(), request.GetDryRun(), func(record *clusterv1.PluginRecord) (*clusterv1.PluginRecord, error) {
		removed = record
		for _, role := range record.GetManifest().GetRoles() {
			roles = append(roles, role.GetName())
		}
		for _, node := range m.cluster.nodes {
			if slices.ContainsFunc(node.GetRecord().GetRoles(), func(a *clusterv1.RoleAssignment) bool { return slices.Contains(roles, a.GetRole()) }) {
				nodes = append(nodes, node.GetRecord().GetId())
			}
		}
		if len(nodes) > 0 && !request.GetRemoveRoles() {
			return nil, status.Errorf(codes.FailedPrecondition, "%s has roles of plugin %s", strings.Join(nodes, " and "), request.GetName())
		}
		return nil, nil
	})
	if err != nil {
		return nil, err
	}
	if !request.GetDryRun() {
		for _, id := range nodes {
			for _, role := range roles {
				_, _ = m.RemoveRole(context.Background(), &clusterv1.RemoveRoleRequest{NodeId: id, Role: role, Wipe: request.GetWipe()})
			}
		}
	}
	return &clusterv1.RemovePluginResponse{Plugin: removed, Nodes: nodes}, nil
}

func (m *management) GetPolicy(context.Context, *clusterv1.GetPolicyRequest) (*clusterv1.GetPolicyResponse, error) {
	return &clusterv1.GetPolicyResponse{Policy: m.cluster.policy}, nil
}

func (m *management) SetPolicy(_ context.Context, request *clusterv1.SetPolicyRequest) (*clusterv1.SetPolicyResponse, error) {
	policy := request.GetPolicy()
	if policy.GetConformance() == clusterv1.ConformancePolicy_CONFORMANCE_POLICY_REQUIRED {
		for _, plugin := range m.cluster.plugins {
			if len(plugin.GetReports()) == 0 {
				return nil, status.Errorf(codes.FailedPrecondition, "plugin %s has no report of the conformance suite", plugin.GetName())
			}
		}
	}
	policy.Generation = m.cluster.policy.GetGeneration() + 1
	if !request.GetDryRun() {
		m.cluster.policy = policy
	}
	return &clusterv1.SetPolicyResponse{Policy: policy}, nil
}

// ImportPlugin takes everything that begins with "plugin NAME" for the plugin of that name, with one role of the same name. Without more it asks for
// a ConsensusUser and a file; otherwise what follows says what it is and asks for: version=V, user=U, split=stop, cache, schema, gives-up=GROUP,
// role=ANOTHER (to which what follows belongs) and grant=NAME or grant=NAME:KEY=VALUE.
func (n *node) ImportPlugin(stream grpc.ClientStreamingServer[nodev1.ImportPluginRequest, nodev1.ImportPluginResponse]) error {
	var data []byte
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		data = append(data, request.GetData()...)
	}
	fields := strings.Fields(string(data[:min(len(data), 1000)]))
	if len(fields) < 2 || fields[0] != "plugin" {
		return status.Error(codes.InvalidArgument, "it is not a plugin: it ended before the handshake")
	}
	name := fields[1]
	role := &rolev1.RoleManifest{Name: name, Summary: "A role for tests"}
	manifest := &rolev1.Manifest{Name: name, Version: "0.1.0", Protocols: []string{"reeve.role.v1"}, Roles: []*rolev1.RoleManifest{role}}
	if len(fields) == 2 {
		fields = append(fields, "user="+name, "grant=replace-file:path=/etc/"+name)
	}
	for _, field := range fields[2:] {
		key, value, _ := strings.Cut(field, "=")
		switch key {
		case "version":
			manifest.Version = value
		case "user":
			role.ConsensusUser = value
		case "split":
			role.InSplit = rolev1.SplitBehaviour(rolev1.SplitBehaviour_value["SPLIT_BEHAVIOUR_"+strings.ToUpper(value)])
		case "stop":
			if grace, err := time.ParseDuration(value); err == nil {
				role.StopGrace = durationpb.New(grace)
			}
		case "cache":
			role.StartsFromCache = true
		case "schema":
			role.ConfigurationSchema = "{}"
		case "gives-up":
			role.GivesUp = append(role.GivesUp, value)
		case "role":
			role = &rolev1.RoleManifest{Name: value, Summary: "Another role"}
			manifest.Roles = append(manifest.Roles, role)
		case "grant":
			grant, parameter, narrowed := strings.Cut(value, ":")
			asked := &rolev1.Grant{Name: grant}
			if narrowed {
				parameter, value, _ := strings.Cut(parameter, "=")
				asked.Parameters = map[string]string{parameter: value}
			}
			role.Grants = append(role.Grants, asked)
		default:
			return status.Errorf(codes.InvalidArgument, "it says %q", field)
		}
	}
	return stream.SendAndClose(&nodev1.ImportPluginResponse{Digest: fmt.Sprintf("sha256:%x", sha256.Sum256(data)), Platform: "linux/amd64", Manifest: manifest})
}
