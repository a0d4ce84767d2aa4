package usage_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
	"github.com/reeveproject/reeve/plugins/consensus/internal/usage"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

const quota = 1 << 20

func user(name string) *consensusv1.DesiredUser {
	return &consensusv1.DesiredUser{ConsensusUser: name, BytesQuota: quota, LeasesQuota: 5}
}

func isOver(err error) bool {
	var over *usage.OverQuotaError
	return errors.As(err, &over)
}

// TestWritersStayWithinTheQuota has 32 writers put, overwrite and delete as fast as they can, of whom most are refused, and looks at every revision
// afterwards: at none did the user have more than it may.
func TestWritersStayWithinTheQuota(t *testing.T) {
	s, _ := storetest.Open(t, storetest.Directory(t), storetest.Plan)
	grant(t, s, user("ant"), user("bee"))
	ctx := storetest.Context(t)
	first := s.Server().KV().Rev()
	ant := as{s, "ant"}
	var group sync.WaitGroup
	var refused, done atomic.Int64
	for writer := range 32 {
		group.Go(func() {
			for n := range 40 {
				key := fmt.Sprintf("%d/%d", writer, n%8)
				var err error
				switch n % 10 {
				case 8:
					err = ant.remove(ctx, fmt.Sprintf("%d/", writer), fmt.Sprintf("%d0", writer))
				case 9:
					put := func(name string) *pb.RequestOp {
						return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{
							Key: []byte(consensusv1.UserPrefix("ant") + key + name), Value: make([]byte, 10_000+writer*100),
						}}}
					}
					_, err = ant.txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{put("a"), {Request: &pb.RequestOp_RequestTxn{
						RequestTxn: &pb.TxnRequest{Success: []*pb.RequestOp{put("b"), put("c")}},
					}}}})
				default:
					err = ant.put(ctx, key, strings.Repeat("x", 10_000+(writer*n)%7000))
				}
				switch {
				case isOver(err):
					refused.Add(1)
				case err != nil:
					t.Error(err)
				default:
					done.Add(1)
				}
			}
		})
	}
	// Nothing of it concerns another.
	for n := range 20 {
		if err := (as{s, "bee"}).put(ctx, fmt.Sprint(n), strings.Repeat("x", 30_000)); err != nil {
			t.Errorf("the other user: %v", err)
		}
	}
	group.Wait()
	counted(t, s, s.Server().KV().Rev())
	checkCount(t, s)

	most := int64(0)
	for revision := first; revision <= s.Server().KV().Rev(); revision++ {
		answer, err := s.Client().Get(store.Root(ctx), consensusv1.UserPrefix("ant"), clientv3.WithPrefix(), clientv3.WithRev(revision))
		if err != nil {
			t.Fatal(err)
		}
		total := int64(0)
		for _, kv := range answer.Kvs {
			total += int64(len(kv.Key) + len(kv.Value))
		}
		most = max(most, total)
	}
	t.Logf("%d requests were let in and %d refused; the user had at most %d of %d bytes", done.Load(), refused.Load(), most, quota)
	if most > quota || most < quota*3/4 || refused.Load() == 0 {
		t.Error("want nearly the quota, and not a byte more")
	}
}

func TestWhatIsLetInOverTheQuota(t *testing.T) {
	s, _ := storetest.Open(t, storetest.Directory(t), storetest.Plan)
	grant(t, s, user("ant"), user("bee"))
	ctx := storetest.Context(t)
	ant := as{s, "ant"}
	value := strings.Repeat("x", 100_000)
	for n := range 10 {
		if err := ant.put(ctx, fmt.Sprint(n), value); err != nil {
			t.Fatal(err)
		}
	}
	err := ant.put(ctx, "more", value)
	if !isOver(err) || status.Code(err) != codes.ResourceExhausted {
		t.Fatalf("a put over the quota: %v", err)
	}
	for _, want := range []string{"the user ant", "1048576 bytes", "has 1000", "would add 1000", "delete", "store-bytes"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	put := func(key, value string) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(consensusv1.UserPrefix("ant") + key), Value: []byte(value)}}}
	}
	remove := func(key, end string) *pb.RequestOp {
		request := &pb.DeleteRangeRequest{Key: []byte(key)}
		if end != "" {
			request.RangeEnd = []byte(end)
		}
		return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: request}}
	}
	nested := func(ops ...*pb.RequestOp) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{Failure: ops}}}
	}
	own := consensusv1.UserPrefix("ant")
	for _, c := range []struct {
		name string
		over bool
		call func() error
	}{
		{"overwrite", false, func() error { return ant.put(ctx, "0", value) }},
		{"overwrite with less", false, func() error { return ant.put(ctx, "0", value[:99_000]) }},
		{"overwrite with what fits", false, func() error { return ant.put(ctx, "0", value) }},
		{"overwrite with much more", true, func() error { return ant.put(ctx, "0", value+value) }},
		{"one put in the place of another", false, func() error {
			_, err := ant.txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{remove(own+"0", ""), put("0a", value[1:])}})
			return err
		}},
		{"one put in the place of a range", false, func() error {
			_, err := ant.txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{remove(own+"0", own+"1"), put("1a", value[1:])}})
			return err
		}},
		{"a put, nested, in the branch not taken", true, func() error {
			_, err := ant.txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{nested(put("new", value))}})
			return err
		}},
		{"a put beside another's keys that would be deleted", true, func() error {
			_, err := ant.txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{remove(consensusv1.UserPrefix("bee"), consensusv1.UserPrefix("bee0")), put("new", value)}})
			return err
		}},
		{"a transaction that only reads", false, func() error {
			_, err := ant.txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte(own)}}}}})
			return err
		}},
		{"a delete", false, func() error { return ant.remove(ctx, "1", "") }},
		{"a put after the delete", false, func() error { return ant.put(ctx, "1", value) }},
	} {
		if err := c.call(); isOver(err) != c.over || err != nil && !c.over {
			t.Errorf("%s: %v, over the quota: want %t", c.name, err, c.over)
		}
	}
	// The owner grants more, and less.
	more := user("ant")
	more.BytesQuota *= 2
	grant(t, s, more, user("bee"))
	if err := ant.put(ctx, "more", value); err != nil {
		t.Errorf("after more was granted: %v", err)
	}
	grant(t, s, user("ant"), user("bee"))
	if err := ant.put(ctx, "even more", value); !isOver(err) {
		t.Errorf("after less was granted: %v", err)
	}
	counted(t, s, s.Server().KV().Rev())
	checkCount(t, s)
}

// TestRestartAgrees compares what a member counts with what the next one on the same files counts, and after a compaction.
func TestRestartAgrees(t *testing.T) {
	directory := storetest.Directory(t)
	s, stop := storetest.Open(t, directory, storetest.Plan)
	grant(t, s, user("ant"), user("bee"))
	ctx := storetest.Context(t)
	for n := range 300 {
		if err := (as{s, []string{"ant", "bee"}[n%2]}).put(ctx, fmt.Sprint(n%90), strings.Repeat("x", n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := (as{s, "ant"}).remove(ctx, "2", "3"); err != nil {
		t.Fatal(err)
	}
	counted(t, s, s.Server().KV().Rev())
	before := checkCount(t, s)
	if _, err := storetest.Recover(ctx, s); err != nil { // compacts
		t.Fatal(err)
	}
	if after := checkCount(t, s); !maps.Equal(after, before) {
		t.Errorf("a compaction has changed what the users have: %v, before %v", after, before)
	}
	stop()
	s, _ = storetest.Open(t, directory, storetest.Plan)
	if after := checkCount(t, s); !maps.Equal(after, before) {
		t.Errorf("after a restart the users have %v, before %v", after, before)
	}
	if err := (as{s, "ant"}).put(ctx, "new", strings.Repeat("x", quota)); !isOver(err) {
		t.Errorf("after a restart a put over the quota: %v", err)
	}
}

// TestLeases lets many ask for leases at once.
func TestLeases(t *testing.T) {
	s, _ := storetest.Open(t, storetest.Directory(t), storetest.Plan)
	grant(t, s, user("ant"), user("bee"))
	ctx := storetest.Context(t)
	lease := func(user string, n int) error {
		id := int64(s.Number(user))<<40 | int64(n+1)
		_, err := do(ctx, as{s, user}, &pb.LeaseGrantRequest{ID: id, TTL: 3600}, s.Server().LeaseGrant)
		return err
	}
	var granted atomic.Int64
	var group sync.WaitGroup
	for n := range 32 {
		group.Go(func() {
			switch err := lease("ant", n); {
			case err == nil:
				granted.Add(1)
			case !isOver(err) || !strings.Contains(err.Error(), "may have 5 leases"):
				t.Error(err)
			}
		})
	}
	group.Wait()
	if granted.Load() != 5 {
		t.Errorf("%d leases were granted, want 5", granted.Load())
	}
	if err := lease("bee", 0); err != nil {
		t.Errorf("the other user: %v", err)
	}
	if err := (as{s, "ant"}).put(ctx, "key", "value"); err != nil {
		t.Errorf("a put of a user without leases to spare: %v", err)
	}
	leases, err := s.Leases("ant")
	if err != nil || len(leases.Leases) != 5 {
		t.Fatalf("the user's leases are %v, %v", leases, err)
	}
	if _, err := s.Server().LeaseRevoke(as{s, "ant"}.ctx(ctx), &pb.LeaseRevokeRequest{ID: leases.Leases[0].ID}); err != nil {
		t.Fatal(err)
	}
	s.Revoked(leases.Leases[0].ID)
	if err := lease("ant", 100); err != nil {
		t.Errorf("after one was revoked: %v", err)
	}
	for _, user := range s.UsageNow() {
		if want := map[string]int64{"ant": 5, "bee": 1}[user.ConsensusUser]; user.Leases != want {
			t.Errorf("the user %s has %d leases, want %d", user.ConsensusUser, user.Leases, want)
		}
	}
}

// TestEmptyKeysCount makes as many empty keys as fit, which is few bytes: each is in the index of every member. One that is there may be written again, and one that is deleted makes room for another,
// also for a member that has counted anew.
func TestEmptyKeysCount(t *testing.T) {
	directory := storetest.Directory(t)
	s, stop := storetest.Open(t, directory, storetest.Plan)
	ample := user("ant")
	ample.BytesQuota = 3 << 20
	grant(t, s, ample)
	ctx := storetest.Context(t)
	ant := as{s, "ant"}
	made := 0
	fill := func() (err error) {
		for ; err == nil; made += 128 {
			request := &pb.TxnRequest{}
			for n := range 128 {
				request.Success = append(request.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{
					Key: []byte(consensusv1.UserPrefix("ant") + fmt.Sprintf("%06d", made+n)),
				}}})
			}
			_, err = ant.txn(ctx, request)
		}
		made -= 128
		return err
	}
	full := func(err error) {
		t.Helper()
		if !isOver(err) || made < 12_000 || made > 12_600 || !strings.Contains(err.Error(), "keys, each of which counts 256 bytes") {
			t.Fatalf("with %d keys: %v", made, err)
		}
	}
	full(fill())
	// What is under way when the last key is counted is let in; so there may be somewhat more than 12,288, or somewhat less.
	var err error
	for n := 0; err == nil && n < 128; n++ {
		err = ant.put(ctx, fmt.Sprintf("more/%d", n), "")
	}
	full(err)
	if err := ant.put(ctx, "000000", ""); err != nil {
		t.Errorf("one that is there: %v", err)
	}
	stop()
	plan := storetest.Plan
	plan.New = false
	s, _ = storetest.Open(t, directory, plan)
	ant.store = s
	full(ant.put(ctx, "one", ""))
	if err := ant.remove(ctx, "000000", "000512"); err != nil {
		t.Fatal(err)
	}
	if err := ant.put(ctx, "one", ""); err != nil {
		t.Errorf("after some were deleted: %v", err)
	}
}

// TestKeysCountBesideBytesThatShrink has each transaction that adds empty keys take bytes off a value: it leaves fewer bytes, and not fewer of what counts.
func TestKeysCountBesideBytesThatShrink(t *testing.T) {
	s, _ := storetest.Open(t, storetest.Directory(t), storetest.Plan)
	ample := user("ant")
	ample.BytesQuota = 3 << 20
	grant(t, s, ample)
	ctx := storetest.Context(t)
	ant := as{s, "ant"}
	left := 1 << 20
	for _, name := range []string{"a", "b"} {
		if err := ant.put(ctx, name, strings.Repeat("x", left)); err != nil {
			t.Fatal(err)
		}
	}
	const each = 126
	made := 0
	for ; ; made += each {
		left -= 4000
		request := &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{
			Key: []byte(consensusv1.UserPrefix("ant") + "a"), Value: []byte(strings.Repeat("x", left)),
		}}}}}
		for n := range each {
			request.Success = append(request.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{
				Key: []byte(consensusv1.UserPrefix("ant") + fmt.Sprintf("%06d", made+n)),
			}}})
		}
		_, err := ant.txn(ctx, request)
		if isOver(err) {
			break
		}
		if err != nil || made > 13_000 {
			t.Fatalf("with %d keys: %v", made, err)
		}
	}
	if made < 12_000 {
		t.Errorf("refused with %d keys", made)
	}
}
