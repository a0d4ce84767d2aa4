package door_test

import (
	"context"
	"errors"
	"io"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

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
	ownLease, foreignLease    = 101, 102
	emptyLease                = 103
)

// prepare puts back what an earlier call took away.
func prepare(t *testing.T, root api) {
	t.Helper()
	ctx := storetest.Context(t)
	for _, lease := range []int64{ownLease, foreignLease, emptyLease} {
		if _, err := root.LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: lease, TTL: 3600}); err != nil && !isStatus(err, rpctypes.ErrGRPCDuplicateKey) && !isStatus(err, rpctypes.ErrGRPCLeaseExist) {
			t.Fatal(err)
		}
	}
	for key, lease := range map[string]int64{ownKey: ownLease, foreignKey: foreignLease, siblingKey: 0} {
		if _, err := root.Put(ctx, &pb.PutRequest{Key: []byte(key), Value: []byte("v"), Lease: lease}); err != nil {
			t.Fatal(err)
		}
	}
}

func confinement(root api) []row {
	rows := append(readRows(), writeRows()...)
	rows = append(rows, txnRows()...)
	rows = append(rows, watchRows()...)
	rows = append(rows, leaseRows()...)
	rows = append(rows, authRows(root)...)
	rows = append(rows, clusterRows()...)
	return append(rows, maintenanceRows()...)
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
		rows = append(rows, row{"KV/RangeStream", c.name, c.want, nil, func(ctx context.Context, a api) error {
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

func writeRows() []row {
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
		put("own key, own lease", own, &pb.PutRequest{Key: []byte(ownKey), Lease: ownLease}),
		put("own key, previous value", own, &pb.PutRequest{Key: []byte(ownKey), PrevKv: true}),
		put("own key, foreign lease", denied, &pb.PutRequest{Key: []byte(ownKey), Lease: foreignLease}),
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
			// The revision is read from the header of a call that everybody may make.
			status, err := a.Status(ctx, &pb.StatusRequest{})
			if err != nil {
				return err
			}
			return drop(a.Compact(ctx, &pb.CompactionRequest{Revision: status.Header.Revision}))
		}},
	}
}

func txnRows() []row {
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
		{"nothing", open, &pb.TxnRequest{}},
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
		{"own key with a foreign lease", denied, &pb.TxnRequest{Success: ops(&pb.RequestOp{Request: &pb.RequestOp_RequestPut{
			RequestPut: &pb.PutRequest{Key: []byte(ownKey), Lease: foreignLease},
		}})}},
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
			if err != nil {
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

func leaseRows() []row {
	keepAlive := func(name string, want outcome, id int64) row {
		return row{"Lease/LeaseKeepAlive", name, want, nil, func(ctx context.Context, a api) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			stream, err := a.LeaseKeepAlive(ctx)
			if err != nil {
				return err
			}
			if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: id}); err != nil {
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
	return []row{
		{"Lease/LeaseGrant", "any", open, nil, func(ctx context.Context, a api) error {
			return drop(a.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 3600}))
		}},
		keepAlive("own lease", own, ownLease),
		keepAlive("foreign lease", denied, foreignLease),
		keepAlive("lease without keys", open, emptyLease),
		timeToLive("own lease, with keys", own, ownLease, true),
		timeToLive("foreign lease, with keys", denied, foreignLease, true),
		timeToLive("foreign lease, without keys", open, foreignLease, false),
		revoke("own lease", own, ownLease),
		revoke("foreign lease", denied, foreignLease),
		revoke("lease without keys", open, emptyLease),
		{"Lease/LeaseLeases", "while others have leases", denied, nil, func(ctx context.Context, a api) error {
			return drop(a.LeaseLeases(ctx, &pb.LeaseLeasesRequest{}))
		}},
	}
}

func clusterRows() []row {
	var learner uint64 // what root's MemberAdd made
	return []row{
		{"Cluster/MemberList", "", open, nil, func(ctx context.Context, a api) error {
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
		{"Maintenance/Status", "", open, nil, func(ctx context.Context, a api) error { return drop(a.Status(ctx, &pb.StatusRequest{})) }},
		alarm("list", open, pb.AlarmRequest_GET),
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
