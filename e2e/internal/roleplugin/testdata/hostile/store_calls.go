package main

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

func authCalls(a *attempt, e *etcd) {
	everything := &authpb.Permission{PermType: authpb.Permission_READWRITE, Key: []byte{0}, RangeEnd: []byte{0}}
	name := a.plugin.name
	calls := []struct {
		what string
		do   func(context.Context) error
	}{
		{"AuthEnable", func(ctx context.Context) error { return drop(e.AuthEnable(ctx, &pb.AuthEnableRequest{})) }},
		{"AuthDisable", func(ctx context.Context) error { return drop(e.AuthDisable(ctx, &pb.AuthDisableRequest{})) }},
		{"UserAdd", func(ctx context.Context) error {
			return drop(e.UserAdd(ctx, &pb.AuthUserAddRequest{Name: "new", Options: &authpb.UserAddOptions{NoPassword: true}}))
		}},
		{"UserGet another", func(ctx context.Context) error { return drop(e.UserGet(ctx, &pb.AuthUserGetRequest{Name: "victim"})) }},
		{"UserList", func(ctx context.Context) error { return drop(e.UserList(ctx, &pb.AuthUserListRequest{})) }},
		{"UserDelete another", func(ctx context.Context) error {
			return drop(e.UserDelete(ctx, &pb.AuthUserDeleteRequest{Name: "victim"}))
		}},
		{"UserChangePassword of root", func(ctx context.Context) error {
			return drop(e.UserChangePassword(ctx, &pb.AuthUserChangePasswordRequest{Name: "root", Password: "x"}))
		}},
		{"UserChangePassword of itself", func(ctx context.Context) error {
			return drop(e.UserChangePassword(ctx, &pb.AuthUserChangePasswordRequest{Name: name, Password: "x"}))
		}},
		{"UserGrantRole root", func(ctx context.Context) error {
			return drop(e.UserGrantRole(ctx, &pb.AuthUserGrantRoleRequest{User: name, Role: "root"}))
		}},
		{"UserGrantRole the victim's", func(ctx context.Context) error {
			return drop(e.UserGrantRole(ctx, &pb.AuthUserGrantRoleRequest{User: name, Role: "victim"}))
		}},
		{"UserRevokeRole another's", func(ctx context.Context) error {
			return drop(e.UserRevokeRole(ctx, &pb.AuthUserRevokeRoleRequest{Name: "victim", Role: "victim"}))
		}},
		{"RoleAdd", func(ctx context.Context) error { return drop(e.RoleAdd(ctx, &pb.AuthRoleAddRequest{Name: "new"})) }},
		{"RoleGet another's", func(ctx context.Context) error { return drop(e.RoleGet(ctx, &pb.AuthRoleGetRequest{Role: "victim"})) }},
		{"RoleList", func(ctx context.Context) error { return drop(e.RoleList(ctx, &pb.AuthRoleListRequest{})) }},
		{"RoleDelete another's", func(ctx context.Context) error {
			return drop(e.RoleDelete(ctx, &pb.AuthRoleDeleteRequest{Role: "victim"}))
		}},
		{"RoleGrantPermission everything", func(ctx context.Context) error {
			return drop(e.RoleGrantPermission(ctx, &pb.AuthRoleGrantPermissionRequest{Name: name, Perm: everything}))
		}},
		{"RoleRevokePermission another's", func(ctx context.Context) error {
			return drop(e.RoleRevokePermission(ctx, &pb.AuthRoleRevokePermissionRequest{Role: "victim", Key: []byte(victims), RangeEnd: []byte(victimsEnd)}))
		}},
	}
	for _, user := range []string{"root", "victim", "curator", name} {
		calls = append(calls, struct {
			what string
			do   func(context.Context) error
		}{"Authenticate as " + user, func(ctx context.Context) error { return drop(e.Authenticate(ctx, &pb.AuthenticateRequest{Name: user})) }})
	}
	for _, c := range calls {
		a.rpc(c.what, c.do)
	}
}

func clusterCalls(a *attempt, e *etcd) {
	peer := []string{"http://127.0.0.1:1"}
	a.rpc("MemberAdd", func(ctx context.Context) error { return drop(e.MemberAdd(ctx, &pb.MemberAddRequest{PeerURLs: peer})) })
	a.rpc("MemberAdd a learner", func(ctx context.Context) error {
		return drop(e.MemberAdd(ctx, &pb.MemberAddRequest{PeerURLs: peer, IsLearner: true}))
	})
	a.rpc("MemberRemove", func(ctx context.Context) error { return drop(e.MemberRemove(ctx, &pb.MemberRemoveRequest{ID: 1})) })
	a.rpc("MemberUpdate", func(ctx context.Context) error {
		return drop(e.MemberUpdate(ctx, &pb.MemberUpdateRequest{ID: 1, PeerURLs: peer}))
	})
	a.rpc("MemberPromote", func(ctx context.Context) error { return drop(e.MemberPromote(ctx, &pb.MemberPromoteRequest{ID: 1})) })
}

func maintenanceCalls(a *attempt, e *etcd) {
	for _, action := range []pb.AlarmRequest_AlarmAction{pb.AlarmRequest_ACTIVATE, pb.AlarmRequest_DEACTIVATE} {
		a.rpc("Alarm "+action.String(), func(ctx context.Context) error {
			return drop(e.Alarm(ctx, &pb.AlarmRequest{Action: action, Alarm: pb.AlarmType_NOSPACE}))
		})
	}
	a.rpc("Defragment", func(ctx context.Context) error { return drop(e.Defragment(ctx, &pb.DefragmentRequest{})) })
	a.rpc("Hash", func(ctx context.Context) error { return drop(e.Hash(ctx, &pb.HashRequest{})) })
	a.rpc("HashKV", func(ctx context.Context) error { return drop(e.HashKV(ctx, &pb.HashKVRequest{})) })
	a.rpc("Snapshot", func(ctx context.Context) error { return drain(e.Snapshot(ctx, &pb.SnapshotRequest{})) })
	a.rpc("MoveLeader", func(ctx context.Context) error { return drop(e.MoveLeader(ctx, &pb.MoveLeaderRequest{TargetID: 1})) })
	for name, action := range pb.DowngradeRequest_DowngradeAction_value {
		a.rpc("Downgrade "+name, func(ctx context.Context) error {
			return drop(e.Downgrade(ctx, &pb.DowngradeRequest{Action: pb.DowngradeRequest_DowngradeAction(action), Version: "3.6.0"}))
		})
	}
}

// withMetadata says in the metadata of a call that somebody else makes it.
func withMetadata(a *attempt, e *etcd) {
	for _, pairs := range [][]string{
		{"token", "root"}, {"token", "simple.1"}, {"authorization", "Bearer root"}, {"token", "root", "token", "victim"},
		{"authorization", "eyJhbGciOiJub25lIn0.eyJ1c2VybmFtZSI6InJvb3QiLCJyZXZpc2lvbiI6MX0."}, {"x-forwarded-user", "root"}, {"client-cert-cn", "root"},
		{"reeve-user", "root"}, {"hasleader", "true"},
	} {
		a.rpc(fmt.Sprintf("Range with %v", pairs), func(ctx context.Context) error {
			ctx = metadata.AppendToOutgoingContext(ctx, pairs...)
			return drop(e.Range(ctx, &pb.RangeRequest{Key: []byte(victims), RangeEnd: []byte(victimsEnd)}))
		})
	}
	a.rpc("Range for another authority", func(ctx context.Context) error {
		return drop(e.Range(ctx, &pb.RangeRequest{Key: []byte(victims), RangeEnd: []byte(victimsEnd)}, grpc.CallAuthority("root")))
	})
}

// otherServices calls services that etcd or gRPC may have beside those of its API.
func otherServices(a *attempt, e *etcd) {
	for _, method := range []string{
		"/v3lockpb.Lock/Lock", "/v3lockpb.Lock/Unlock", "/v3electionpb.Election/Campaign", "/v3electionpb.Election/Proclaim",
		"/v3electionpb.Election/Leader", "/v3electionpb.Election/Observe", "/v3electionpb.Election/Resign",
		"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
		"/grpc.channelz.v1.Channelz/GetServers", "/reeve.consensus.v1.ConsensusService/Form", "/reeve.consensus.v1.SnapshotService/TakeSnapshot", "/reeve.role.v1.RoleService/Stop",
		"/reeve.role.v1.RoleService/Describe", "/reeve.cluster.v1.ManagementService/ListNodes", "/reeve.node.v1.NodeService/GetStatus",
		"/../etcdserverpb.KV/Range", "//etcdserverpb.KV/Range", "/etcdserverpb.KV/range", "/ETCDSERVERPB.KV/Range",
	} {
		a.rpc(method, func(ctx context.Context) error {
			err := e.conn.Invoke(ctx, method, &pb.RangeRequest{Key: []byte(victims)}, &pb.RangeResponse{})
			if status.Code(err) == codes.Internal {
				return nil // it was answered, with something else
			}
			return err
		})
	}
}
