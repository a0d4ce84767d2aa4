package door_test

import (
	"context"
	"errors"
	"io"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/reeveproject/reeve/plugins/consensus/internal/numbers"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
)

// row is one call of the table. It is made by the user ant and then by root.
type row struct {
	method, name string
	want         outcome
	root         error // what root gets; nil: it succeeds
	call         func(context.Context, api) error
}

// The keys and leases that prepare makes before every call.
const (
	ownPrefix, ownEnd         = "/reeve/users/ant/", "/reeve/users/ant0"
	ownKey                    = "/reeve/users/ant/key"
	foreignPrefix, foreignEnd = "/reeve/users/bee/", "/reeve/users/bee0"
	foreignKey                = "/reeve/users/bee/key"
	siblingKey                = "/reeve/users/ants/key"
)

// leases are those of the table, by whose they are; empty ones have no keys.
type leases struct{ own, empty, foreign, foreignEmpty, nobody int64 }

func leasesOf(n *node) leases {
	lease := func(user string, random int64) int64 { return int64(n.store.Number(user))<<40 | random }
	return leases{own: lease("ant", 1), empty: lease("ant", 2), foreign: lease("bee", 1), foreignEmpty: lease("bee", 2), nobody: 101}
}

// prepare puts back what an earlier call took away.
func prepare(t *testing.T, n *node, root api, ids leases) {
	t.Helper()
	ctx := storetest.Context(t)
	if leasesOf(n) != ids || missing(t, root) {
		// Root has deleted everything, the numbers of the users among it.
		for _, number := range []struct {
			key   string
			lease int64
		}{
			{numbers.Key("ant"), ids.own}, {numbers.Key("bee"), ids.foreign}, {numbers.LastKey, max(ids.own, ids.foreign)},
		} {
			value := []byte(numbers.Format(numbers.OfLease(number.lease)))
			if _, err := root.Put(ctx, &pb.PutRequest{Key: []byte(number.key), Value: value}); err != nil {
				t.Fatal(err)
			}
		}
		storetest.Eventually(t, "the numbers of the users", func() bool { return leasesOf(n) == ids })
	}
	for _, lease := range []int64{ids.own, ids.empty, ids.foreign, ids.foreignEmpty, ids.nobody} {
		if _, err := root.LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: lease, TTL: 3600}); err != nil && !isStatus(err, rpctypes.ErrGRPCDuplicateKey) && !isStatus(err, rpctypes.ErrGRPCLeaseExist) {
			t.Fatal(err)
		}
	}
	for key, lease := range map[string]int64{ownKey: ids.own, foreignKey: ids.foreign, siblingKey: 0} {
		if _, err := root.Put(ctx, &pb.PutRequest{Key: []byte(key), Value: []byte("v"), Lease: lease}); err != nil {
			t.Fatal(err)
		}
	}
}

func missing(t *testing.T, root api) bool {
	t.Helper()
	answer, err := root.Range(storetest.Context(t), &pb.RangeRequest{Key: []byte(numbers.Key("ant"))})
	if err != nil {
		t.Fatal(err)
	}
	return answer.GetCount() == 0
}

func confinement(root api, ids leases) []row {
	rows := append(readRows(), writeRows(root, ids)...)
	rows = append(rows, txnRows(ids)...)
	rows = append(rows, watchRows()...)
	rows = append(rows, leaseRows(ids)...)
	rows = append(rows, authRows(root)...)
	rows = append(rows, clusterRows()...)
	rows = append(rows, maintenanceRows()...)
	return append(rows, healthRows()...)
}

func drop[T any](_ T, err error) error { return err }

func readRows() []row {
	var rows []row
	for _, c := range []struct {
		name    string
		want    outcome
		request *pb.RangeRequest
	}{
		{"own key", own, &pb.RangeRequest{Key: []byte(ownKey)}},
		{"own prefix", own, &pb.RangeRequest{Key: []byte(ownPrefix), RangeEnd: []byte(ownEnd)}},
		{"own key, serializable", own, &pb.RangeRequest{Key: []byte(ownKey), Serializable: true}},
		{"foreign key", denied, &pb.RangeRequest{Key: []byte(foreignKey)}},
		{"foreign key, serializable", denied, &pb.RangeRequest{Key: []byte(foreignKey), Serializable: true}},
		{"foreign key, old revision", denied, &pb.RangeRequest{Key: []byte(foreignKey), Revision: 2}},
		{"foreign key, count only", denied, &pb.RangeRequest{Key: []byte(foreignKey), CountOnly: true}},
		{"foreign prefix", denied, &pb.RangeRequest{Key: []byte(foreignPrefix), RangeEnd: []byte(foreignEnd)}},
		{"foreign prefix, keys only", denied, &pb.RangeRequest{Key: []byte(foreignPrefix), RangeEnd: []byte(foreignEnd), KeysOnly: true}},
		{"own prefix and more", denied, &pb.RangeRequest{Key: []byte(ownPrefix), RangeEnd: []byte(foreignEnd)}},
		{"from own key on", denied, &pb.RangeRequest{Key: []byte(ownKey), RangeEnd: []byte{0}}},
		{"everything", denied, &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}},
		{"longer name, same beginning", denied, &pb.RangeRequest{Key: []byte(siblingKey)}},
		{"own prefix without its slash", denied, &pb.RangeRequest{Key: []byte("/reeve/users/ant")}},
		{"end of own prefix", denied, &pb.RangeRequest{Key: []byte(ownEnd)}},
		{"outside of all prefixes", denied, &pb.RangeRequest{Key: []byte("compact_rev_key")}},
	} {
		rows = append(rows, row{"KV/Range", c.name, c.want, nil, func(ctx context.Context, a api) error {
			return drop(a.Range(ctx, c.request))
		}})
		if c.request.KeysOnly || c.request.CountOnly {
			continue
		}
		rows = append(rows, row{"KV/RangeStream", c.name, absent, nil, func(ctx context.Context, a api) error {
			return drain(a.RangeStream(ctx, c.request))
		}})
	}
	return rows
}

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

func writeRows(root api, ids leases) []row {
	put := func(name string, want outcome, request *pb.PutRequest) row {
		return row{"KV/Put", name, want, nil, func(ctx context.Context, a api) error { return drop(a.Put(ctx, request)) }}
	}
	remove := func(name string, want outcome, key, end string) row {
		return row{"KV/DeleteRange", name, want, nil, func(ctx context.Context, a api) error {
			return drop(a.DeleteRange(ctx, &pb.DeleteRangeRequest{Key: []byte(key), RangeEnd: []byte(end)}))
		}}
	}
	return []row{
		put("own key", own, &pb.PutRequest{Key: []byte(ownKey), Value: []byte("v")}),
		put("own key, own lease", own, &pb.PutRequest{Key: []byte(ownKey), Lease: ids.own}),
		put("own key, previous value", own, &pb.PutRequest{Key: []byte(ownKey), PrevKv: true}),
		put("own key, foreign lease", denied, &pb.PutRequest{Key: []byte(ownKey), Lease: ids.foreign}),
		put("own key, foreign lease without keys", denied, &pb.PutRequest{Key: []byte(ownKey), Lease: ids.foreignEmpty}),
		put("own key, nobody's lease", denied, &pb.PutRequest{Key: []byte(ownKey), Lease: ids.nobody}),
		put("foreign key", denied, &pb.PutRequest{Key: []byte(foreignKey), Value: []byte("v")}),
		put("foreign key, previous value", denied, &pb.PutRequest{Key: []byte(foreignKey), PrevKv: true}),
		put("longer name, same beginning", denied, &pb.PutRequest{Key: []byte(siblingKey)}),
		put("own prefix without its slash", denied, &pb.PutRequest{Key: []byte("/reeve/users/ant")}),
		put("outside of all prefixes", denied, &pb.PutRequest{Key: []byte("compact_rev_key")}),
		remove("own key", own, ownKey, ""),
		remove("own prefix", own, ownPrefix, ownEnd),
		remove("foreign key", denied, foreignKey, ""),
		remove("foreign prefix", denied, foreignPrefix, foreignEnd),
		remove("own prefix and more", denied, ownPrefix, foreignEnd),
		remove("everything", denied, "\x00", "\x00"),
		{"KV/Compact", "present revision", denied, nil, func(ctx context.Context, a api) error {
			status, err := root.Status(ctx, &pb.StatusRequest{})
			if err != nil {
				return err
			}
			return drop(a.Compact(ctx, &pb.CompactionRequest{Revision: status.Header.Revision}))
		}},
	}
}

func txnRows(ids leases) []row {
	get := func(key string) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte(key)}}}
	}
	put := func(key string) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key)}}}
	}
	remove := func(key string) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(key)}}}
	}
	nested := func(op *pb.RequestOp) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{Success: []*pb.RequestOp{op}}}}
	}
	leased := func(lease int64) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(ownKey), Lease: lease}}}
	}
	exists := func(key string) *pb.Compare {
		return &pb.Compare{Key: []byte(key), Target: pb.Compare_VERSION, Result: pb.Compare_GREATER, TargetUnion: &pb.Compare_Version{Version: 0}}
	}
	ops := func(ops ...*pb.RequestOp) []*pb.RequestOp { return ops }
	var rows []row
	for _, c := range []struct {
		name    string
		want    outcome
		request *pb.TxnRequest
	}{
		{"own keys", own, &pb.TxnRequest{Compare: []*pb.Compare{exists(ownKey)}, Success: ops(get(ownKey), put(ownKey)), Failure: ops(remove(ownKey))}},
		{"nothing", own, &pb.TxnRequest{}},
		{"compare a foreign key", denied, &pb.TxnRequest{Compare: []*pb.Compare{exists(foreignKey)}, Success: ops(get(ownKey))}},
		{"compare a foreign range", denied, &pb.TxnRequest{Compare: []*pb.Compare{{
			Key: []byte(ownPrefix), RangeEnd: []byte(foreignEnd), Target: pb.Compare_VERSION, Result: pb.Compare_GREATER, TargetUnion: &pb.Compare_Version{},
		}}}},
		{"get a foreign key", denied, &pb.TxnRequest{Success: ops(get(foreignKey))}},
		{"put a foreign key", denied, &pb.TxnRequest{Success: ops(put(foreignKey))}},
		{"delete a foreign key", denied, &pb.TxnRequest{Success: ops(remove(foreignKey))}},
		{"get a foreign key in the branch not taken", denied, &pb.TxnRequest{Failure: ops(get(foreignKey))}},
		{"put a foreign key in the branch not taken", denied, &pb.TxnRequest{Failure: ops(put(foreignKey))}},
		{"get a foreign key, nested", denied, &pb.TxnRequest{Success: ops(nested(get(foreignKey)))}},
		{"put a foreign key, nested twice", denied, &pb.TxnRequest{Success: ops(nested(nested(put(foreignKey))))}},
		{"own key with its lease", own, &pb.TxnRequest{Success: ops(leased(ids.own)), Failure: ops(nested(leased(ids.empty)))}},
		{"own key with a foreign lease", denied, &pb.TxnRequest{Success: ops(leased(ids.foreign))}},
		{"own key with a foreign lease without keys", denied, &pb.TxnRequest{Success: ops(leased(ids.foreignEmpty))}},
		{"own key with a foreign lease, in the branch not taken", denied, &pb.TxnRequest{Failure: ops(leased(ids.foreignEmpty))}},
		{"own key with a foreign lease, nested twice", denied, &pb.TxnRequest{Success: ops(nested(nested(leased(ids.foreignEmpty))))}},
		{"own key with nobody's lease", denied, &pb.TxnRequest{Success: ops(leased(ids.nobody))}},
	} {
		rows = append(rows, row{"KV/Txn", c.name, c.want, nil, func(ctx context.Context, a api) error { return drop(a.Txn(ctx, c.request)) }})
	}
	return rows
}

func watchRows() []row {
	watch := func(name string, want outcome, key, end string, revision int64) row {
		return row{"Watch/Watch", name, want, nil, func(ctx context.Context, a api) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			stream, err := a.Watch(ctx)
			if err != nil {
				return err
			}
			err = stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
				Key: []byte(key), RangeEnd: []byte(end), StartRevision: revision,
			}}})
			if err != nil && !errors.Is(err, io.EOF) { // the stream has ended, and Recv says why
				return err
			}
			answer, err := stream.Recv()
			switch {
			case err != nil:
				return err
			case answer.Canceled && answer.CancelReason == rpctypes.ErrGRPCPermissionDenied.Error():
				return rpctypes.ErrGRPCPermissionDenied
			case answer.Canceled || !answer.Created:
				return errors.New("the watch was not made: " + answer.CancelReason)
			}
			return nil
		}}
	}
	return []row{
		watch("own key", own, ownKey, "", 0),
		watch("own prefix", own, ownPrefix, ownEnd, 0),
		watch("foreign key", denied, foreignKey, "", 0),
		watch("foreign key, from the past", denied, foreignKey, "", 1),
		watch("foreign prefix", denied, foreignPrefix, foreignEnd, 0),
		watch("own prefix and more", denied, ownPrefix, foreignEnd, 0),
		watch("everything", denied, "\x00", "\x00", 0),
	}
}

func leaseRows(ids leases) []row {
	keepAlive := func(name string, want outcome, id int64) row {
		return row{"Lease/LeaseKeepAlive", name, want, nil, func(ctx context.Context, a api) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			stream, err := a.LeaseKeepAlive(ctx)
			if err != nil {
				return err
			}
			if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: id}); err != nil && !errors.Is(err, io.EOF) { // Recv says why the stream has ended
				return err
			}
			return drop(stream.Recv())
		}}
	}
	revoke := func(name string, want outcome, id int64) row {
		return row{"Lease/LeaseRevoke", name, want, nil, func(ctx context.Context, a api) error {
			return drop(a.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: id}))
		}}
	}
	timeToLive := func(name string, want outcome, id int64, keys bool) row {
		return row{"Lease/LeaseTimeToLive", name, want, nil, func(ctx context.Context, a api) error {
			return drop(a.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: id, Keys: keys}))
		}}
	}
	grant := func(name string, want outcome, id int64) row {
		return row{"Lease/LeaseGrant", name, want, nil, func(ctx context.Context, a api) error {
			return drop(a.LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: id, TTL: 3600}))
		}}
	}
	return []row{
		grant("any", own, 0),
		grant("an ID of another", denied, ids.foreign+1000),
		grant("an ID of nobody", denied, 1000),
		grant("an ID below zero", denied, -1),
		keepAlive("own lease", own, ids.own),
		keepAlive("own lease without keys", own, ids.empty),
		keepAlive("foreign lease", denied, ids.foreign),
		keepAlive("foreign lease without keys", denied, ids.foreignEmpty),
		keepAlive("nobody's lease", denied, ids.nobody),
		timeToLive("own lease, with keys", own, ids.own, true),
		timeToLive("own lease, without keys", own, ids.own, false),
		timeToLive("foreign lease, with keys", denied, ids.foreign, true),
		timeToLive("foreign lease, without keys", denied, ids.foreign, false),
		timeToLive("foreign lease that has none", denied, ids.foreignEmpty, true),
		timeToLive("nobody's lease", denied, ids.nobody, false),
		revoke("own lease", own, ids.own),
		revoke("own lease without keys", own, ids.empty),
		revoke("foreign lease", denied, ids.foreign),
		revoke("foreign lease without keys", denied, ids.foreignEmpty),
		revoke("nobody's lease", denied, ids.nobody),
		{"Lease/LeaseLeases", "its own", own, nil, func(ctx context.Context, a api) error {
			return drop(a.LeaseLeases(ctx, &pb.LeaseLeasesRequest{}))
		}},
	}
}

func clusterRows() []row {
	var learner uint64 // what root's MemberAdd made
	return []row{
		{"Cluster/MemberList", "", denied, nil, func(ctx context.Context, a api) error {
			return drop(a.MemberList(ctx, &pb.MemberListRequest{Linearizable: true}))
		}},
		{"Cluster/MemberAdd", "a learner", denied, nil, func(ctx context.Context, a api) error {
			answer, err := a.MemberAdd(ctx, &pb.MemberAddRequest{PeerURLs: []string{"unix://new"}, IsLearner: true})
			if err == nil {
				learner = answer.Member.ID
			}
			return err
		}},
		{"Cluster/MemberUpdate", "another", denied, nil, func(ctx context.Context, a api) error {
			return drop(a.MemberUpdate(ctx, &pb.MemberUpdateRequest{ID: learner, PeerURLs: []string{"unix://other"}}))
		}},
		// Beyond the permission, etcd wants the learner to have caught up.
		{"Cluster/MemberPromote", "another", denied, rpctypes.ErrGRPCLearnerNotReady, func(ctx context.Context, a api) error {
			return drop(a.MemberPromote(ctx, &pb.MemberPromoteRequest{ID: learner}))
		}},
		{"Cluster/MemberRemove", "another", denied, nil, func(ctx context.Context, a api) error {
			return drop(a.MemberRemove(ctx, &pb.MemberRemoveRequest{ID: learner}))
		}},
	}
}

func maintenanceRows() []row {
	alarm := func(name string, want outcome, action pb.AlarmRequest_AlarmAction) row {
		return row{"Maintenance/Alarm", name, want, nil, func(ctx context.Context, a api) error {
			return drop(a.Alarm(ctx, &pb.AlarmRequest{Action: action, Alarm: pb.AlarmType_NOSPACE}))
		}}
	}
	downgrade := func(name string, action pb.DowngradeRequest_DowngradeAction) row {
		return row{"Maintenance/Downgrade", name, denied, nil, func(ctx context.Context, a api) error {
			return drop(a.Downgrade(ctx, &pb.DowngradeRequest{Action: action, Version: "3.6.0"}))
		}}
	}
	return []row{
		{"Maintenance/Status", "", own, nil, func(ctx context.Context, a api) error { return drop(a.Status(ctx, &pb.StatusRequest{})) }},
		alarm("list", denied, pb.AlarmRequest_GET),
		alarm("disarm", denied, pb.AlarmRequest_DEACTIVATE),
		{"Maintenance/Alarm", "raise", denied, nil, func(ctx context.Context, a api) error {
			if err := drop(a.Alarm(ctx, &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE})); err != nil {
				return err
			}
			return drop(a.Alarm(ctx, &pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE, Alarm: pb.AlarmType_NOSPACE}))
		}},
		{"Maintenance/Defragment", "", denied, nil, func(ctx context.Context, a api) error { return drop(a.Defragment(ctx, &pb.DefragmentRequest{})) }},
		{"Maintenance/Hash", "", denied, nil, func(ctx context.Context, a api) error { return drop(a.Hash(ctx, &pb.HashRequest{})) }},
		{"Maintenance/HashKV", "", denied, nil, func(ctx context.Context, a api) error { return drop(a.HashKV(ctx, &pb.HashKVRequest{})) }},
		{"Maintenance/Snapshot", "", denied, nil, func(ctx context.Context, a api) error { return drain(a.Snapshot(ctx, &pb.SnapshotRequest{})) }},
		// Beyond the permission, there is nobody to move to.
		{"Maintenance/MoveLeader", "", denied, rpctypes.ErrGRPCBadLeaderTransferee, func(ctx context.Context, a api) error {
			return drop(a.MoveLeader(ctx, &pb.MoveLeaderRequest{TargetID: 1}))
		}},
		downgrade("validate", pb.DowngradeRequest_VALIDATE),
		downgrade("enable", pb.DowngradeRequest_ENABLE),
		downgrade("cancel", pb.DowngradeRequest_CANCEL),
	}
}

func healthRows() []row {
	check := func(method string, call func(context.Context, healthpb.HealthClient) error) row {
		return row{"grpc.health.v1.Health/" + method, "", denied, nil, func(ctx context.Context, a api) error { return call(ctx, a.HealthClient) }}
	}
	return []row{
		check("Check", func(ctx context.Context, a healthpb.HealthClient) error {
			return drop(a.Check(ctx, &healthpb.HealthCheckRequest{}))
		}),
		check("List", func(ctx context.Context, a healthpb.HealthClient) error {
			return drop(a.List(ctx, &healthpb.HealthListRequest{}))
		}),
		check("Watch", func(ctx context.Context, a healthpb.HealthClient) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			stream, err := a.Watch(ctx, &healthpb.HealthCheckRequest{})
			if err != nil {
				return err
			}
			return drop(stream.Recv())
		}),
	}
}
