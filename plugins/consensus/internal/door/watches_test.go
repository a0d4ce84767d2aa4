package door_test

import (
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
)

// beginWatch asks for a watch on a stream.
func beginWatch(t *testing.T, stream pb.Watch_WatchClient, request *pb.WatchCreateRequest) {
	t.Helper()
	if err := stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: request}}); err != nil {
		t.Fatal(err)
	}
}

// TestFiltersAreBounded asks for more filters than there are: etcd calls all of them for each event, in front of everybody's writes.
func TestFiltersAreBounded(t *testing.T) {
	_, ant, bee := hungry(t)
	api := apiOf(rawConnection(t, ant.Socket))
	for count, want := range map[int]string{2: "", 3: "3 filters"} {
		stream, err := api.Watch(storetest.Context(t))
		if err != nil {
			t.Fatal(err)
		}
		beginWatch(t, stream, &pb.WatchCreateRequest{Key: []byte(ownKey), Filters: make([]pb.WatchCreateRequest_FilterType, count)})
		if _, err = stream.Recv(); want != "" {
			exceeded(t, want, err, want)
		} else if err != nil {
			t.Errorf("%d filters: %v", count, err)
		}
	}
	works(t, bee)
}

// TestWatchesWhoseHistoryIsGoneCount begins watches in a past that is gone. etcd tells so as it tells that a watch was cancelled, but keeps them until they are.
func TestWatchesWhoseHistoryIsGoneCount(t *testing.T) {
	n, ant, _ := hungry(t)
	ctx := storetest.Context(t)
	if _, err := n.store.Client().Compact(store.Root(ctx), n.store.Server().KV().Rev()); err != nil {
		t.Fatal(err)
	}
	stream, err := apiOf(rawConnection(t, ant.Socket)).Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	const most = 1000
	begin := func(id int64) {
		beginWatch(t, stream, &pb.WatchCreateRequest{Key: fmt.Appendf(nil, "%s%d", ownKey, id), StartRevision: 1, WatchId: id})
	}
	// await reads until it is told something of a watch; etcd repeats itself.
	await := func(what func(*pb.WatchResponse) bool) error {
		for {
			if told, err := stream.Recv(); err != nil || what(told) {
				return err
			}
		}
	}
	seen := make(map[int64]bool)
	for id := range int64(most) {
		begin(id + 1)
	}
	if err := await(func(told *pb.WatchResponse) bool {
		if told.GetCompactRevision() != 0 {
			seen[told.GetWatchId()] = true
		}
		return len(seen) == most
	}); err != nil {
		t.Fatal(err)
	}
	// One that is cancelled makes room for one.
	if err := stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: 7}}}); err != nil {
		t.Fatal(err)
	}
	if err := await(func(told *pb.WatchResponse) bool { return told.GetCanceled() && told.GetCompactRevision() == 0 }); err != nil {
		t.Fatal(err)
	}
	begin(7)
	if err := await(func(told *pb.WatchResponse) bool { return told.GetCreated() && told.GetWatchId() == 7 }); err != nil {
		t.Errorf("in the place of one: %v", err)
	}
	begin(most + 1)
	exceeded(t, "one more", await(func(*pb.WatchResponse) bool { return false }), "1000 watches")
}
