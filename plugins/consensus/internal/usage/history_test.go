package usage_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/reeveproject/reeve/plugins/consensus/internal/usage"
)

// TestHistoryIsBoundedByItsChanges takes in changes without bytes: of a key that is no user's, of one key, and of two keys in turn. Half of as many as there may be are kept at least.
func TestHistoryIsBoundedByItsChanges(t *testing.T) {
	const one, other = "/reeve/users/ant/1", "/reeve/users/ant/2"
	for _, c := range []struct {
		keys    []string
		changes int
		want    int64
	}{
		{[]string{"/reeve/curator/nodes/1"}, 199_999, 0},
		{[]string{"/reeve/curator/nodes/1"}, 200_000, 100_000},
		{[]string{one}, 19_999, 0},
		{[]string{one}, 20_000, 10_000},
		{[]string{one}, 29_999, 10_000},
		{[]string{one}, 30_000, 20_000},
		{[]string{one, other}, 20_000, 0},
		{[]string{one, other}, 30_000, 14_142}, // two keys of 7,071 changes each
	} {
		if old, _ := usage.ChangesOf("ant", 0, slices.Repeat(c.keys, c.changes/len(c.keys)+1)[:c.changes]...); old != c.want {
			t.Errorf("after %d changes of %q history is old before revision %d, want %d", c.changes, c.keys, old, c.want)
		}
	}
}

// TestFormerValuesAreWalkedTo: for each former value of a key etcd walks those that are newer. Where each key has few, as in Kubernetes, that is little, however much history there is.
func TestFormerValuesAreWalkedTo(t *testing.T) {
	hot := slices.Repeat([]string{"/reeve/users/ant/hot"}, 15_000) // over both halves of history
	var many []string
	for n := range 15_000 {
		many = append(many, fmt.Sprintf("/reeve/users/ant/%04d", n%1000))
	}
	for name, c := range map[string]struct {
		user        string
		since       int64
		keys        []string
		least, most int64
	}{
		"one key":                    {"ant", 1, hot, 15_000 * 15_000 / 2, 15_000 * 15_000},
		"one key, lately":            {"ant", 14_901, hot, 100 * 100 / 2, 100 * 600},
		"many keys":                  {"ant", 1, many, 1000 * 15 * 15 / 2, 1000 * 15 * 16},
		"a key of another user":      {"bee", 1, hot, 0, 0},
		"a revision that is to come": {"ant", 15_002, hot, 0, 0},
	} {
		if _, walked := usage.ChangesOf(c.user, c.since, c.keys...); walked < c.least || walked > c.most {
			t.Errorf("%s: etcd walks %d revisions, want %d to %d", name, walked, c.least, c.most)
		}
	}
}

// TestHistoryOutlastsOverwriting overwrites keys with the smallest values, as fast as that may be, for 20 seconds. History is cut when one half of it has too many changes: that must not be each half second, or
// everybody's watches lose their place.
func TestHistoryOutlastsOverwriting(t *testing.T) {
	for _, c := range []struct {
		keys, most int // how often history is cut
	}{{1, 20 / 8}, {10, 20 / 5}} {
		synctest.Test(t, func(t *testing.T) {
			counter := usage.Paced(usage.Pace{PerSecond: 4 << 20, AtOnce: 4 << 20})
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			old, cuts, puts := int64(0), 0, 0
			for ; ctx.Err() == nil; puts++ {
				key := fmt.Sprintf("/reeve/users/ant/%d", puts%c.keys)
				var request any = &pb.PutRequest{Key: []byte(key)}
				if puts%2 == 1 {
					put := &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key)}}}
					nested := &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{Failure: []*pb.RequestOp{put}}}}
					request = &pb.TxnRequest{Success: []*pb.RequestOp{nested}}
				}
				if err := counter.Wait(ctx, "ant", request); err != nil {
					break // the time is over before it may write again
				}
				counter.Change(key)
				if cut := counter.OldHistory(); cut != old {
					old, cuts = cut, cuts+1
				}
			}
			if cuts > c.most || cuts == 0 {
				t.Errorf("with %d keys, history was cut %d times by %d changes, want %d at most", c.keys, cuts, puts, c.most)
			}
			// Others do not pay for it, nor does it for keys that it overwrites less often.
			for user, key := range map[string]string{"bee": "/reeve/users/bee/0", "ant": "/reeve/users/ant/other"} {
				request := &pb.PutRequest{Key: []byte(key)}
				if got, want := counter.Overwrites(user, request), int64(0); got != want {
					t.Errorf("%s pays %d for %s", user, got, key)
				}
			}
		})
	}
}
