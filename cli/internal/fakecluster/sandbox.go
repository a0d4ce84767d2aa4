package fakecluster

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/proto/remit"
)

// GetRole answers with the grants of the catalog, and a sandbox of a process that runs.
func (n *node) GetRole(_ context.Context, request *nodev1.GetRoleRequest) (*nodev1.GetRoleResponse, error) {
	self := n.status()
	response := &nodev1.GetRoleResponse{}
	for _, instance := range self.GetNode().GetInstances() {
		if instance.GetRole() == request.GetRole() {
			response.Status = instance
		}
	}
	if response.Status == nil {
		return nil, status.Errorf(codes.NotFound, "role %s is not one that this node should run", request.GetRole())
	}
	for _, plugin := range n.cluster.plugins {
		for _, grants := range plugin.GetGrants() {
			if grants.GetRole() == request.GetRole() {
				response.Grants = grants
			}
		}
	}
	if user := response.GetGrants().GetConsensusUser(); user != "" {
		response.Usage = &consensusv1.UserUsage{ConsensusUser: user, Bytes: 64 << 20, BytesQuota: 256 << 20, Leases: 3, LeasesQuota: 1000}
	}
	if response.GetStatus().GetPid() == 0 {
		return response, nil
	}
	powers, err := remit.Of(response.GetGrants().GetGrants())
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	data := "/var/lib/reeve/data/roles/" + request.GetRole()
	response.Sandbox = &nodev1.Sandbox{
		Tier: powers.Tier(), Uid: 1879048193, Gid: 1879048193, OwnUser: true, NoNewPrivileges: true, DeniedSystemCalls: []string{"mount", "module"},
		Reads: append([]string{"/etc", "/proc"}, powers.Read...), Writes: append([]string{data}, powers.Write...), Executes: powers.Execute,
		Listens: powers.Listen.Texts(), Connects: powers.Connect.Texts(), UnixSocketsOnly: powers.Listen.None() && powers.Connect.None(),
		OwnMounts: true, OwnIpc: true, MemoryBytes: 1 << 30, Processes: 512, CpuWeight: 100, OpenFiles: 4096,
		ControlGroups: []string{"/sys/fs/cgroup/memory/reeve/" + request.GetRole()}, Missing: self.GetNode().GetMissing(),
	}
	return response, nil
}
