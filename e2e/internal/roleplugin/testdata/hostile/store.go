package main

import (
	"context"
	"errors"
	"io"
	"strconv"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// The prefix of the victim; of the curator, which holds the key of the cluster's CA; and what lies under root's.
const (
	victims, victimsEnd   = "/reeve/users/victim/", "/reeve/users/victim0"
	curators, curatorsEnd = "/reeve/users/curator/", "/reeve/users/curator0"
)

func (r *runner) prefix() string { return "/reeve/users/" + r.plugin.name + "/" }

// dial connects to a Unix socket, without any security.
func dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"),
		grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(1<<30), grpc.MaxCallRecvMsgSize(1<<30)),
		// A store that was away is tried again soon, and not after up to two minutes.
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, MaxDelay: time.Second}, MinConnectTimeout: 20 * time.Second}))
}

// openStore waits until the store is open to the instance and returns its socket.
func (r *runner) openStore(ctx context.Context) (string, error) {
	conn, err := dial(r.start.GetHostSocket())
	if err != nil {
		return "", err
	}
	defer conn.Close()
	stream, err := hostv1.NewHostServiceClient(conn).OpenConsensus(ctx, &hostv1.OpenConsensusRequest{})
	for err == nil {
		var response *hostv1.OpenConsensusResponse
		if response, err = stream.Recv(); err == nil && response.GetOpen() != nil {
			return response.GetOpen().GetSocket(), nil
		}
	}
	return "", err
}

// etcd is all of etcd's services.
type etcd struct {
	pb.KVClient
	pb.WatchClient
	pb.LeaseClient
	pb.AuthClient
	pb.ClusterClient
	pb.MaintenanceClient
	conn *grpc.ClientConn
}

func newEtcd(conn *grpc.ClientConn) *etcd {
	return &etcd{
		pb.NewKVClient(conn), pb.NewWatchClient(conn), pb.NewLeaseClient(conn), pb.NewAuthClient(conn), pb.NewClusterClient(conn),
		pb.NewMaintenanceClient(conn), conn,
	}
}

func (r *runner) store() (*etcd, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	socket, err := r.openStore(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := dial(socket)
	if err != nil {
		return nil, err
	}
	return newEtcd(conn), nil
}

// withStore is an attempt on the store: first of all it shows that the connection works.
func withStore(perform func(*attempt, *etcd)) func(*attempt) {
	return func(a *attempt) {
		e, err := a.store()
		if err != nil {
			a.note("open its own part of the store", say(err))
			return
		}
		defer e.conn.Close()
		ctx, cancel := short()
		defer cancel()
		if _, err := e.Put(ctx, &pb.PutRequest{Key: []byte(a.prefix() + "key"), Value: []byte("v")}); err != nil {
			a.note("write its own key", say(err))
			return
		}
		a.result.Values["works"] = "yes"
		perform(a, e)
	}
}

func short() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 5*time.Second)
}

// rpc makes one call.
func (a *attempt) rpc(what string, do func(context.Context) error) bool {
	ctx, cancel := short()
	defer cancel()
	return a.try(what, do(ctx))
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

func (a *attempt) lease() int64 {
	id, _ := strconv.ParseInt(a.arguments["lease"], 10, 64)
	return id
}

var keyAttempts = map[string]func(*attempt){
	"keys.read":        withStore(readKeys),
	"keys.write":       withStore(writeKeys),
	"keys.watch":       withStore(watchKeys),
	"keys.txn":         withStore(txnKeys),
	"keys.lease":       withStore(leases),
	"keys.auth":        withStore(authCalls),
	"keys.cluster":     withStore(clusterCalls),
	"keys.maintenance": withStore(maintenanceCalls),
	"keys.metadata":    withStore(withMetadata),
	"keys.other":       withStore(otherServices),
	"keys.quota":       withStore(storeQuota),
	"keys.leases":      withStore(leaseQuota),
}

func readKeys(a *attempt, e *etcd) {
	own := a.prefix()
	for _, c := range []struct {
		what    string
		request *pb.RangeRequest
	}{
		{"the victim's key", &pb.RangeRequest{Key: []byte(victims + "secret")}},
		{"the victim's keys", &pb.RangeRequest{Key: []byte(victims), RangeEnd: []byte(victimsEnd)}},
		{"serializable", &pb.RangeRequest{Key: []byte(victims), RangeEnd: []byte(victimsEnd), Serializable: true}},
		{"count only", &pb.RangeRequest{Key: []byte(victims), RangeEnd: []byte(victimsEnd), CountOnly: true}},
		{"keys only", &pb.RangeRequest{Key: []byte(victims), RangeEnd: []byte(victimsEnd), KeysOnly: true}},
		{"limit 1, sorted", &pb.RangeRequest{Key: []byte(own), RangeEnd: []byte("/reeve/users/z"), Limit: 1, SortOrder: pb.RangeRequest_DESCEND}},
		{"an old revision", &pb.RangeRequest{Key: []byte(victims), RangeEnd: []byte(victimsEnd), Revision: 2}},
		{"the curator's keys", &pb.RangeRequest{Key: []byte(curators), RangeEnd: []byte(curatorsEnd)}},
		{"a range that straddles", &pb.RangeRequest{Key: []byte(own), RangeEnd: []byte("/reeve/users/z")}},
		{"a range that begins before", &pb.RangeRequest{Key: []byte("/reeve/users/"), RangeEnd: []byte(own + "z")}},
		{"from its own key on (\\0)", &pb.RangeRequest{Key: []byte(own + "key"), RangeEnd: []byte{0}}},
		{"everything (\\0 \\0)", &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}},
		{"a longer name", &pb.RangeRequest{Key: []byte("/reeve/users/" + a.plugin.name + "s/key")}},
		{"outside of all prefixes", &pb.RangeRequest{Key: []byte("/reeve/consensus/"), RangeEnd: []byte("/reeve/consensus0")}},
		{"an end before its beginning", &pb.RangeRequest{Key: []byte(own + "key"), RangeEnd: []byte(victims)}},
	} {
		a.rpc("Range "+c.what, func(ctx context.Context) error {
			response, err := e.Range(ctx, c.request)
			if err == nil && c.what == "an end before its beginning" && len(response.GetKvs()) == 0 {
				return errors.New("nothing comes of it")
			}
			return err
		})
	}
	a.rpc("RangeStream the victim's keys", func(ctx context.Context) error {
		return drain(e.RangeStream(ctx, &pb.RangeRequest{Key: []byte(victims), RangeEnd: []byte(victimsEnd)}))
	})
}

func writeKeys(a *attempt, e *etcd) {
	own := a.prefix()
	for _, c := range []struct {
		what    string
		request *pb.PutRequest
	}{
		{"the victim's key", &pb.PutRequest{Key: []byte(victims + "secret"), Value: []byte("taken")}},
		{"a new key of the victim's", &pb.PutRequest{Key: []byte(victims + "new"), Value: []byte("taken")}},
		{"with the previous value", &pb.PutRequest{Key: []byte(victims + "secret"), Value: []byte("taken"), PrevKv: true}},
		{"ignore_value, previous value", &pb.PutRequest{Key: []byte(victims + "secret"), IgnoreValue: true, PrevKv: true}},
		{"ignore_lease", &pb.PutRequest{Key: []byte(victims + "leased"), Value: []byte("taken"), IgnoreLease: true}},
		{"its own key on the victim's lease", &pb.PutRequest{Key: []byte(own + "key"), Value: []byte("v"), Lease: a.lease()}},
		{"its own key on the victim's empty lease", &pb.PutRequest{Key: []byte(own + "key"), Value: []byte("v"), Lease: a.lease() + 1}},
		{"outside of all prefixes", &pb.PutRequest{Key: []byte("compact_rev_key"), Value: []byte("v")}},
		{"its prefix without the slash", &pb.PutRequest{Key: []byte("/reeve/users/" + a.plugin.name), Value: []byte("v")}},
		{"the document of desired users", &pb.PutRequest{Key: []byte(curators + "consensus/desired"), Value: []byte("v")}},
		{"the empty key", &pb.PutRequest{Value: []byte("v")}},
	} {
		if c.what == "its own key on the victim's empty lease" {
			c.request.Lease, _ = strconv.ParseInt(a.arguments["empty"], 10, 64)
		}
		a.rpc("Put "+c.what, func(ctx context.Context) error { return drop(e.Put(ctx, c.request)) })
	}
	for _, c := range [][3]string{
		{"the victim's key", victims + "secret", ""}, {"the victim's prefix", victims, victimsEnd}, {"a range that straddles", own, "/reeve/users/z"},
		{"everything", "\x00", "\x00"}, {"from its own key on", own + "key", "\x00"},
	} {
		a.rpc("DeleteRange "+c[0], func(ctx context.Context) error {
			return drop(e.DeleteRange(ctx, &pb.DeleteRangeRequest{Key: []byte(c[1]), RangeEnd: []byte(c[2]), PrevKv: true}))
		})
	}
	a.rpc("Compact", func(ctx context.Context) error { return drop(e.Compact(ctx, &pb.CompactionRequest{Revision: 1})) })
}

func watchKeys(a *attempt, e *etcd) {
	own := a.prefix()
	for _, c := range []struct {
		what, key, end string
		request        *pb.WatchCreateRequest
	}{
		{"the victim's key", victims + "secret", "", &pb.WatchCreateRequest{}},
		{"with the previous value", victims, victimsEnd, &pb.WatchCreateRequest{PrevKv: true}},
		{"from the past", victims, victimsEnd, &pb.WatchCreateRequest{StartRevision: 1}},
		{"with progress and fragments", curators, curatorsEnd, &pb.WatchCreateRequest{ProgressNotify: true, Fragment: true}},
		{"a range that straddles", own, "/reeve/users/z", &pb.WatchCreateRequest{}},
		{"everything", "\x00", "\x00", &pb.WatchCreateRequest{}},
		{"from its own key on", own + "key", "\x00", &pb.WatchCreateRequest{}},
	} {
		a.rpc("Watch "+c.what, func(ctx context.Context) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			stream, err := e.Watch(ctx)
			if err != nil {
				return err
			}
			c.request.Key, c.request.RangeEnd = []byte(c.key), []byte(c.end)
			if err := stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: c.request}}); err != nil {
				return err
			}
			answer, err := stream.Recv()
			if err == nil && answer.Canceled {
				return errors.New(answer.CancelReason)
			}
			return err
		})
	}
}

func txnKeys(a *attempt, e *etcd) {
	own, ownKey, foreign := a.prefix(), a.prefix()+"key", victims+"secret"
	get := func(key string) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte(key)}}}
	}
	put := func(key string, lease int64) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key), Value: []byte("taken"), Lease: lease}}}
	}
	remove := func(key, end string) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(key), RangeEnd: []byte(end)}}}
	}
	nested := func(request *pb.TxnRequest) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: request}}
	}
	exists := func(key, end string) []*pb.Compare {
		return []*pb.Compare{{
			Key: []byte(key), RangeEnd: []byte(end), Target: pb.Compare_VERSION, Result: pb.Compare_GREATER, TargetUnion: &pb.Compare_Version{},
		}}
	}
	value := []*pb.Compare{{
		Key: []byte(foreign), Target: pb.Compare_VALUE, Result: pb.Compare_GREATER, TargetUnion: &pb.Compare_Value{Value: []byte("a")},
	}}
	ops := func(ops ...*pb.RequestOp) []*pb.RequestOp { return ops }
	for _, c := range []struct {
		what    string
		request *pb.TxnRequest
	}{
		{"compare the victim's key", &pb.TxnRequest{Compare: exists(foreign, ""), Success: ops(get(ownKey))}},
		{"guess the victim's value by comparing", &pb.TxnRequest{Compare: value, Success: ops(put(ownKey, 0))}},
		{"compare a range that straddles", &pb.TxnRequest{Compare: exists(own, "/reeve/users/z")}},
		{"compare and do nothing", &pb.TxnRequest{Compare: exists(foreign, "")}},
		{"get the victim's key", &pb.TxnRequest{Success: ops(get(foreign))}},
		{"put the victim's key", &pb.TxnRequest{Success: ops(put(foreign, 0))}},
		{"delete the victim's prefix", &pb.TxnRequest{Success: ops(remove(victims, victimsEnd))}},
		{"put in the branch not taken", &pb.TxnRequest{Failure: ops(put(foreign, 0))}},
		{"get in the branch not taken", &pb.TxnRequest{Failure: ops(get(foreign))}},
		{"put, nested", &pb.TxnRequest{Success: ops(nested(&pb.TxnRequest{Success: ops(nested(&pb.TxnRequest{Success: ops(put(foreign, 0))}))}))}},
		{"get, nested in the branch not taken", &pb.TxnRequest{Failure: ops(nested(&pb.TxnRequest{Failure: ops(get(foreign))}))}},
		{"compare, nested", &pb.TxnRequest{Success: ops(nested(&pb.TxnRequest{Compare: exists(foreign, ""), Success: ops(get(ownKey))}))}},
		{"its own key on the victim's lease", &pb.TxnRequest{Success: ops(put(ownKey, a.lease()))}},
		{"its own key on the victim's lease, nested", &pb.TxnRequest{Success: ops(nested(&pb.TxnRequest{Success: ops(put(ownKey, a.lease()))}))}},
	} {
		a.rpc("Txn "+c.what, func(ctx context.Context) error { return drop(e.Txn(ctx, c.request)) })
	}
}
