package usage_test

import (
	"cmp"
	"flag"
	"maps"
	"os"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"pgregory.net/rapid"

	"github.com/reeveproject/reeve/plugins/consensus/internal/numbers"
	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
	"github.com/reeveproject/reeve/plugins/consensus/internal/usage"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// The same histories are tried each time, unless REEVE_TEST_SEED or -rapid.seed says otherwise.
func init() {
	_ = flag.Set("rapid.seed", cmp.Or(os.Getenv("REEVE_TEST_SEED"), "1"))
	_ = flag.Set("rapid.checks", checks)
}

// TestCountIsWhatIsStored has several users do whatever they may, in any order, and compares after every few steps what was counted step by step with
// what is stored, and that nobody has more than it may.
func TestCountIsWhatIsStored(t *testing.T) {
	s, _ := storetest.Open(t, storetest.Directory(t), storetest.Plan)
	small := func(name string) *consensusv1.DesiredUser {
		return &consensusv1.DesiredUser{ConsensusUser: name, BytesQuota: 2000, LeasesQuota: 3}
	}
	grant(t, s, small("ant"), small("ants"), small("bee"))
	ctx := storetest.Context(t)
	counter := follow(t, s)
	rapid.Check(t, func(t *rapid.T) {
		check := func(what string, err error) {
			t.Helper()
			if err != nil && !isOver(err) {
				t.Fatalf("%s: %v", what, err)
			}
		}
		who := func(t *rapid.T) as { return as{s, rapid.SampledFrom([]string{"ant", "ants", "bee"}).Draw(t, "user")} }
		name := rapid.SampledFrom([]string{"a", "b", "b/c", "b/d", "e", "f"})
		value := rapid.SliceOfN(rapid.Byte(), 0, 900)
		leaseOf := func(t *rapid.T, a as) int64 {
			leases, err := s.Leases(a.user)
			if err != nil {
				t.Fatal(err)
			}
			if len(leases.Leases) == 0 {
				return 0
			}
			return rapid.SampledFrom(leases.Leases).Draw(t, "lease").ID
		}
		key := func(a as, name string) []byte { return []byte(consensusv1.UserPrefix(a.user) + name) }
		put := func(t *rapid.T, a as) *pb.PutRequest {
			return &pb.PutRequest{Key: key(a, name.Draw(t, "key")), Value: value.Draw(t, "value"), Lease: leaseOf(t, a)}
		}
		ops := func(t *rapid.T, a as) (all []*pb.RequestOp) {
			// Every key at most once, as etcd wants it.
			for _, name := range rapid.SliceOfNDistinct(name, 0, 3, rapid.ID[string]).Draw(t, "keys") {
				switch rapid.IntRange(0, 2).Draw(t, "operation") {
				case 0:
					all = append(all, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: key(a, name), Value: value.Draw(t, "value")}}})
				case 1:
					all = append(all, &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: key(a, name)}}})
				case 2:
					nested := &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: key(a, name), Value: value.Draw(t, "value")}}}
					txn := &pb.TxnRequest{Success: []*pb.RequestOp{nested}}
					if rapid.Bool().Draw(t, "in the branch not taken") {
						txn = &pb.TxnRequest{Failure: []*pb.RequestOp{nested}}
					}
					all = append(all, &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: txn}})
				}
			}
			return all
		}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				a := who(t)
				_, err := do(ctx, a, put(t, a), s.Server().Put)
				check("put", err)
			},
			"delete": func(t *rapid.T) {
				check("delete", who(t).remove(ctx, name.Draw(t, "key"), ""))
			},
			"delete a range": func(t *rapid.T) {
				check("delete a range", who(t).remove(ctx, "b", "c"))
			},
			"txn": func(t *rapid.T) {
				a := who(t)
				exists := &pb.Compare{Key: key(a, name.Draw(t, "compared")), Target: pb.Compare_CREATE, Result: pb.Compare_GREATER, TargetUnion: &pb.Compare_CreateRevision{}}
				_, err := a.txn(ctx, &pb.TxnRequest{Compare: []*pb.Compare{exists}, Success: ops(t, a), Failure: ops(t, a)})
				check("txn", err)
			},
			"grant": func(t *rapid.T) {
				a := who(t)
				_, err := do(ctx, a, &pb.LeaseGrantRequest{ID: numbers.NewLease(s.Number(a.user)), TTL: 3600}, s.Server().LeaseGrant)
				check("grant", err)
			},
			"revoke": func(t *rapid.T) {
				a := who(t)
				if lease := leaseOf(t, a); lease != 0 {
					_, err := s.Server().LeaseRevoke(a.ctx(ctx), &pb.LeaseRevokeRequest{ID: lease})
					check("revoke", err)
					s.Revoked(lease)
				}
			},
			"compact": func(t *rapid.T) {
				_, err := s.Server().Compact(store.Root(ctx), &pb.CompactionRequest{Revision: s.Server().KV().Rev(), Physical: rapid.Bool().Draw(t, "physical")})
				if err != nil {
					t.Log(err) // it was compacted already
				}
			},
			"": func(t *rapid.T) {
				for min(s.Counted(), counter.Revision()) < s.Server().KV().Rev() {
					if ctx.Err() != nil {
						t.Fatalf("counted to revision %d, the store is at %d", s.Counted(), s.Server().KV().Rev())
					}
				}
				for user, bytes := range checkCount(t, s) {
					if bytes > 2000 && user != "curator" {
						t.Fatalf("the user %s has %d bytes", user, bytes)
					}
				}
				_, attached, _, err := usage.Sum(ctx, s.Server().KV())
				if counted := counter.Attached(); err != nil || !maps.Equal(counted, attached) {
					t.Fatalf("the leases have %v keys, and are counted to have %v: %v", attached, counted, err)
				}
				for _, user := range s.UsageNow() {
					leases, err := s.Leases(user.ConsensusUser)
					if err != nil || int64(len(leases.Leases)) != user.Leases || user.Leases > 3 {
						t.Fatalf("the user %s is counted to have %d leases and has %v, %v", user.ConsensusUser, user.Leases, leases, err)
					}
				}
			},
		})
	})
}
