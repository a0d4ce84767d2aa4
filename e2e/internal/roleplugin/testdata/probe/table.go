package main

import (
	"context"
	"errors"
	"io"
	"reflect"
	"time"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/status"
)

// result is what became of one call.
type result struct {
	Service, Method, Call string
	// Permitted says that etcd lets every user do this: it is there to show that the connection works.
	Permitted bool
	// Code and Message are of the gRPC status; "OK" and nothing if the call was answered.
	Code, Message string
}

// table is all results, and the methods that etcd's API has.
type table struct {
	Results []result
	Methods []string
}

// api is all of etcd's services.
type api struct {
	pb.KVClient
	pb.WatchClient
	pb.LeaseClient
	pb.AuthClient
	pb.ClusterClient
	pb.MaintenanceClient
}

const (
	own, ownEnd = "/reeve/users/probe/", "/reeve/users/probe0"
	ownKey      = own + "key"
	// The curator's prefix holds the key of the cluster's CA.
	foreign, foreignEnd = "/reeve/users/curator/", "/reeve/users/curator0"
	victimKey           = "/reeve/users/victim/key"
)

// tryAll makes every call of etcd's API that is not the caller's to make. lease is another user's, with a key on it.
func tryAll(ctx context.Context, raw *clientv3.Client, lease int64) (table, error) {
	connection := raw.ActiveConnection()
	a := api{
		pb.NewKVClient(connection), pb.NewWatchClient(connection), pb.NewLeaseClient(connection),
		pb.NewAuthClient(connection), pb.NewClusterClient(connection), pb.NewMaintenanceClient(connection),
	}
	if _, err := a.Put(ctx, &pb.PutRequest{Key: []byte(ownKey), Value: []byte("v")}); err != nil {
		return table{}, err
	}
	present, err := a.Status(ctx, &pb.StatusRequest{})
	if err != nil {
		return table{}, err
	}
	t := &trial{ctx: ctx}
	t.kv(a, present.Header.Revision, lease)
	t.watch(a)
	t.lease(a, lease)
	t.auth(a)
	t.cluster(a)
	t.maintenance(a)
	methods := make([]string, 0, len(t.results))
	for service, kind := range map[string]reflect.Type{
		"KV": reflect.TypeFor[pb.KVClient](), "Watch": reflect.TypeFor[pb.WatchClient](), "Lease": reflect.TypeFor[pb.LeaseClient](),
		"Auth": reflect.TypeFor[pb.AuthClient](), "Cluster": reflect.TypeFor[pb.ClusterClient](), "Maintenance": reflect.TypeFor[pb.MaintenanceClient](),
	} {
		for i := range kind.NumMethod() {
			methods = append(methods, service+"/"+kind.Method(i).Name)
		}
	}
	return table{Results: t.results, Methods: methods}, nil
}

type trial struct {
	ctx     context.Context
	service string
	results []result
}

func (t *trial) record(method, call string, permitted bool, do func(context.Context) error) {
	ctx, cancel := context.WithTimeout(t.ctx, 10*time.Second)
	defer cancel()
	answer := status.Convert(do(ctx))
	t.results = append(t.results, result{t.service, method, call, permitted, answer.Code().String(), answer.Message()})
}

// refused records a call that etcd is to refuse.
func (t *trial) refused(method, call string, do func(context.Context) error) {
	t.record(method, call, false, do)
}

// permitted records a call that is anybody's to make, or about the own.
func (t *trial) permitted(method, call string, do func(context.Context) error) {
	t.record(method, call, true, do)
}

func drop[T any](_ T, err error) error { return err }

// drain reads a stream to its end.
func drain[T any](stream interface{ Recv() (T, error) }, err error) error {
	for err == nil {
		_, err = stream.Recv()
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func (t *trial) kv(a api, revision, lease int64) {
	t.service = "KV"
	for _, c := range []struct {
		call      string
		permitted bool
		request   *pb.RangeRequest
	}{
		{"own prefix", true, &pb.RangeRequest{Key: []byte(own), RangeEnd: []byte(ownEnd)}},
		{"foreign prefix", false, &pb.RangeRequest{Key: []byte(foreign), RangeEnd: []byte(foreignEnd)}},
		{"foreign prefix, serializable", false, &pb.RangeRequest{Key: []byte(foreign), RangeEnd: []byte(foreignEnd), Serializable: true}},
		{"foreign prefix, count only", false, &pb.RangeRequest{Key: []byte(foreign), RangeEnd: []byte(foreignEnd), CountOnly: true}},
		{"foreign prefix, old revision", false, &pb.RangeRequest{Key: []byte(foreign), RangeEnd: []byte(foreignEnd), Revision: 2}},
		{"foreign key", false, &pb.RangeRequest{Key: []byte(victimKey)}},
		{"own prefix and more", false, &pb.RangeRequest{Key: []byte(own), RangeEnd: []byte("/reeve/users/z")}},
		{"from own key on", false, &pb.RangeRequest{Key: []byte(ownKey), RangeEnd: []byte{0}}},
		{"everything", false, &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}},
		{"longer name, same beginning", false, &pb.RangeRequest{Key: []byte("/reeve/users/probes/key")}},
		{"outside of all prefixes", false, &pb.RangeRequest{Key: []byte("/reeve/consensus/key")}},
	} {
		t.record("Range", c.call, c.permitted, func(ctx context.Context) error { return drop(a.Range(ctx, c.request)) })
		if !c.request.CountOnly {
			t.refused("RangeStream", c.call, func(ctx context.Context) error { return drain(a.RangeStream(ctx, c.request)) })
		}
	}
	for _, c := range []struct {
		call    string
		request *pb.PutRequest
	}{
		{"foreign key", &pb.PutRequest{Key: []byte(foreign + "key"), Value: []byte("v")}},
		{"foreign key, previous value", &pb.PutRequest{Key: []byte(victimKey), PrevKv: true}},
		{"own key on a foreign lease", &pb.PutRequest{Key: []byte(ownKey), Lease: lease}},
		{"outside of all prefixes", &pb.PutRequest{Key: []byte("compact_rev_key")}},
		{"own prefix without its slash", &pb.PutRequest{Key: []byte("/reeve/users/probe")}},
	} {
		t.refused("Put", c.call, func(ctx context.Context) error { return drop(a.Put(ctx, c.request)) })
	}
	for _, c := range [][3]string{
		{"foreign key", victimKey, ""}, {"foreign prefix", foreign, foreignEnd}, {"own prefix and more", own, "/reeve/users/z"}, {"everything", "\x00", "\x00"},
	} {
		t.refused("DeleteRange", c[0], func(ctx context.Context) error {
			return drop(a.DeleteRange(ctx, &pb.DeleteRangeRequest{Key: []byte(c[1]), RangeEnd: []byte(c[2])}))
		})
	}
	t.txn(a, lease)
	t.refused("Compact", "present revision", func(ctx context.Context) error {
		return drop(a.Compact(ctx, &pb.CompactionRequest{Revision: revision}))
	})
}

func (t *trial) txn(a api, lease int64) {
	get := func(key string) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte(key)}}}
	}
	put := func(key string, lease int64) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key), Lease: lease}}}
	}
	remove := func(key string) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(key)}}}
	}
	nested := func(op *pb.RequestOp) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{Success: []*pb.RequestOp{op}}}}
	}
	exists := func(key, end string) []*pb.Compare {
		return []*pb.Compare{{
			Key: []byte(key), RangeEnd: []byte(end), Target: pb.Compare_VERSION, Result: pb.Compare_GREATER, TargetUnion: &pb.Compare_Version{},
		}}
	}
	ops := func(ops ...*pb.RequestOp) []*pb.RequestOp { return ops }
	for _, c := range []struct {
		call      string
		permitted bool
		request   *pb.TxnRequest
	}{
		{"own key", true, &pb.TxnRequest{Compare: exists(ownKey, ""), Success: ops(get(ownKey), put(ownKey, 0))}},
		{"compare a foreign key", false, &pb.TxnRequest{Compare: exists(victimKey, ""), Success: ops(get(ownKey))}},
		{"compare own prefix and more", false, &pb.TxnRequest{Compare: exists(own, "/reeve/users/z")}},
		{"get a foreign key", false, &pb.TxnRequest{Success: ops(get(victimKey))}},
		{"put a foreign key", false, &pb.TxnRequest{Success: ops(put(victimKey, 0))}},
		{"delete a foreign key", false, &pb.TxnRequest{Success: ops(remove(victimKey))}},
		{"put a foreign key in the branch not taken", false, &pb.TxnRequest{Failure: ops(put(victimKey, 0))}},
		{"get a foreign key in the branch not taken", false, &pb.TxnRequest{Failure: ops(get(victimKey))}},
		{"put a foreign key, nested", false, &pb.TxnRequest{Success: ops(nested(nested(put(victimKey, 0))))}},
		{"own key on a foreign lease", false, &pb.TxnRequest{Success: ops(put(ownKey, lease))}},
	} {
		t.record("Txn", c.call, c.permitted, func(ctx context.Context) error { return drop(a.Txn(ctx, c.request)) })
	}
}

func (t *trial) watch(a api) {
	t.service = "Watch"
	for _, c := range []struct {
		call      string
		permitted bool
		key, end  string
		from      int64
	}{
		{"own prefix", true, own, ownEnd, 0},
		{"foreign key", false, victimKey, "", 0},
		{"foreign key, from the past", false, victimKey, "", 1},
		{"foreign prefix", false, foreign, foreignEnd, 0},
		{"own prefix and more", false, own, "/reeve/users/z", 0},
		{"everything", false, "\x00", "\x00", 0},
	} {
		t.record("Watch", c.call, c.permitted, func(ctx context.Context) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			stream, err := a.Watch(ctx)
			if err != nil {
				return err
			}
			request := &pb.WatchCreateRequest{Key: []byte(c.key), RangeEnd: []byte(c.end), StartRevision: c.from}
			if err := stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: request}}); err != nil {
				return err
			}
			answer, err := stream.Recv()
			if err == nil && answer.Canceled {
				// The stream goes on; the refusal is the text of a status.
				return errors.New(answer.CancelReason)
			}
			return err
		})
	}
}

func (t *trial) lease(a api, lease int64) {
	t.service = "Lease"
	t.permitted("LeaseGrant", "any", func(ctx context.Context) error { return drop(a.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 60})) })
	t.refused("LeaseRevoke", "foreign lease", func(ctx context.Context) error {
		return drop(a.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: lease}))
	})
	t.refused("LeaseTimeToLive", "foreign lease, with keys", func(ctx context.Context) error {
		return drop(a.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: lease, Keys: true}))
	})
	t.permitted("LeaseLeases", "which are its own only", func(ctx context.Context) error {
		answer, err := a.LeaseLeases(ctx, &pb.LeaseLeasesRequest{})
		for _, of := range answer.GetLeases() {
			if of.GetID() == lease {
				return errors.New("the list has a lease of another user")
			}
		}
		return err
	})
	t.refused("LeaseKeepAlive", "foreign lease", func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := a.LeaseKeepAlive(ctx)
		if err != nil {
			return err
		}
		if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: lease}); err != nil {
			return err
		}
		return drop(stream.Recv())
	})
}

func (t *trial) auth(a api) {
	t.service = "Auth"
	everything := &authpb.Permission{PermType: authpb.Permission_READWRITE, Key: []byte{0}, RangeEnd: []byte{0}}
	t.refused("AuthStatus", "", func(ctx context.Context) error { return drop(a.AuthStatus(ctx, &pb.AuthStatusRequest{})) })
	t.refused("UserGet", "itself", func(ctx context.Context) error { return drop(a.UserGet(ctx, &pb.AuthUserGetRequest{Name: "probe"})) })
	t.refused("RoleGet", "its own", func(ctx context.Context) error { return drop(a.RoleGet(ctx, &pb.AuthRoleGetRequest{Role: "probe"})) })
	t.refused("AuthEnable", "", func(ctx context.Context) error { return drop(a.AuthEnable(ctx, &pb.AuthEnableRequest{})) })
	t.refused("AuthDisable", "", func(ctx context.Context) error { return drop(a.AuthDisable(ctx, &pb.AuthDisableRequest{})) })
	t.refused("UserAdd", "", func(ctx context.Context) error {
		return drop(a.UserAdd(ctx, &pb.AuthUserAddRequest{Name: "new", Options: &authpb.UserAddOptions{NoPassword: true}}))
	})
	t.refused("UserGet", "another", func(ctx context.Context) error { return drop(a.UserGet(ctx, &pb.AuthUserGetRequest{Name: "curator"})) })
	t.refused("UserList", "", func(ctx context.Context) error { return drop(a.UserList(ctx, &pb.AuthUserListRequest{})) })
	t.refused("UserDelete", "another", func(ctx context.Context) error {
		return drop(a.UserDelete(ctx, &pb.AuthUserDeleteRequest{Name: "curator"}))
	})
	t.refused("UserChangePassword", "root's", func(ctx context.Context) error {
		return drop(a.UserChangePassword(ctx, &pb.AuthUserChangePasswordRequest{Name: "root", Password: "x"}))
	})
	t.refused("UserGrantRole", "root to itself", func(ctx context.Context) error {
		return drop(a.UserGrantRole(ctx, &pb.AuthUserGrantRoleRequest{User: "probe", Role: "root"}))
	})
	t.refused("UserGrantRole", "another's role to itself", func(ctx context.Context) error {
		return drop(a.UserGrantRole(ctx, &pb.AuthUserGrantRoleRequest{User: "probe", Role: "curator"}))
	})
	t.refused("UserRevokeRole", "another's", func(ctx context.Context) error {
		return drop(a.UserRevokeRole(ctx, &pb.AuthUserRevokeRoleRequest{Name: "curator", Role: "curator"}))
	})
	t.refused("RoleAdd", "", func(ctx context.Context) error { return drop(a.RoleAdd(ctx, &pb.AuthRoleAddRequest{Name: "new"})) })
	t.refused("RoleGet", "another's", func(ctx context.Context) error { return drop(a.RoleGet(ctx, &pb.AuthRoleGetRequest{Role: "curator"})) })
	t.refused("RoleList", "", func(ctx context.Context) error { return drop(a.RoleList(ctx, &pb.AuthRoleListRequest{})) })
	t.refused("RoleDelete", "another's", func(ctx context.Context) error {
		return drop(a.RoleDelete(ctx, &pb.AuthRoleDeleteRequest{Role: "curator"}))
	})
	t.refused("RoleGrantPermission", "everything to itself", func(ctx context.Context) error {
		return drop(a.RoleGrantPermission(ctx, &pb.AuthRoleGrantPermissionRequest{Name: "probe", Perm: everything}))
	})
	t.refused("RoleRevokePermission", "another's", func(ctx context.Context) error {
		return drop(a.RoleRevokePermission(ctx, &pb.AuthRoleRevokePermissionRequest{Role: "curator", Key: []byte(foreign), RangeEnd: []byte(foreignEnd)}))
	})
	// Not a matter of permissions: nobody has a password, so there is nothing to prove.
	t.refused("Authenticate", "as root", func(ctx context.Context) error {
		return drop(a.Authenticate(ctx, &pb.AuthenticateRequest{Name: "root"}))
	})
}

func (t *trial) cluster(a api) {
	t.service = "Cluster"
	t.refused("MemberList", "", func(ctx context.Context) error { return drop(a.MemberList(ctx, &pb.MemberListRequest{})) })
	t.refused("MemberAdd", "a member", func(ctx context.Context) error {
		return drop(a.MemberAdd(ctx, &pb.MemberAddRequest{PeerURLs: []string{"http://127.0.0.1:1"}}))
	})
	t.refused("MemberAdd", "a learner", func(ctx context.Context) error {
		return drop(a.MemberAdd(ctx, &pb.MemberAddRequest{PeerURLs: []string{"http://127.0.0.1:1"}, IsLearner: true}))
	})
	t.refused("MemberRemove", "", func(ctx context.Context) error { return drop(a.MemberRemove(ctx, &pb.MemberRemoveRequest{ID: 1})) })
	t.refused("MemberUpdate", "", func(ctx context.Context) error {
		return drop(a.MemberUpdate(ctx, &pb.MemberUpdateRequest{ID: 1, PeerURLs: []string{"http://127.0.0.1:1"}}))
	})
	t.refused("MemberPromote", "", func(ctx context.Context) error { return drop(a.MemberPromote(ctx, &pb.MemberPromoteRequest{ID: 1})) })
}

func (t *trial) maintenance(a api) {
	t.service = "Maintenance"
	t.permitted("Status", "", func(ctx context.Context) error { return drop(a.Status(ctx, &pb.StatusRequest{})) })
	t.refused("Alarm", "list", func(ctx context.Context) error { return drop(a.Alarm(ctx, &pb.AlarmRequest{})) })
	t.refused("Alarm", "raise", func(ctx context.Context) error {
		return drop(a.Alarm(ctx, &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE}))
	})
	t.refused("Alarm", "disarm", func(ctx context.Context) error {
		return drop(a.Alarm(ctx, &pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE, Alarm: pb.AlarmType_NOSPACE}))
	})
	t.refused("Defragment", "", func(ctx context.Context) error { return drop(a.Defragment(ctx, &pb.DefragmentRequest{})) })
	t.refused("Hash", "", func(ctx context.Context) error { return drop(a.Hash(ctx, &pb.HashRequest{})) })
	t.refused("HashKV", "", func(ctx context.Context) error { return drop(a.HashKV(ctx, &pb.HashKVRequest{})) })
	t.refused("Snapshot", "", func(ctx context.Context) error { return drain(a.Snapshot(ctx, &pb.SnapshotRequest{})) })
	t.refused("MoveLeader", "", func(ctx context.Context) error { return drop(a.MoveLeader(ctx, &pb.MoveLeaderRequest{TargetID: 1})) })
	for name, action := range map[string]pb.DowngradeRequest_DowngradeAction{
		"validate": pb.DowngradeRequest_VALIDATE, "enable": pb.DowngradeRequest_ENABLE, "cancel": pb.DowngradeRequest_CANCEL,
	} {
		t.refused("Downgrade", name, func(ctx context.Context) error {
			return drop(a.Downgrade(ctx, &pb.DowngradeRequest{Action: action, Version: "3.6.0"}))
		})
	}
}
