package door_test

import (
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
)

// BenchmarkAccounting compares a user whose bytes are reckoned with and the cluster user, who is not bounded.
func BenchmarkAccounting(b *testing.B) {
	n := start(b, storetest.Directory(b))
	n.ensure(b, "ant")
	n.open(b, n.instance(b, "ant.1", "ant"), n.instance(b, "curator.1", "curator"))
	for _, user := range []string{"curator", "ant"} {
		kv := pb.NewKVClient(storetest.Dial(b, n.instance(b, user+".1", user).Socket).ActiveConnection())
		key := func(worker int) []byte { return []byte(fmt.Sprintf("/reeve/users/%s/%d", user, worker%32)) }
		ctx := b.Context()
		value := make([]byte, 256)
		for name, call := range map[string]func(int) error{
			"put": func(n int) error { return drop(kv.Put(ctx, &pb.PutRequest{Key: key(n), Value: value})) },
			"get": func(n int) error { return drop(kv.Range(ctx, &pb.RangeRequest{Key: key(n)})) },
		} {
			b.Run(name+"/"+user, func(b *testing.B) {
				for n := 0; b.Loop(); n++ {
					if err := call(n); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run(name+"32/"+user, func(b *testing.B) {
				b.SetParallelism(16)
				b.RunParallel(func(each *testing.PB) {
					for n := 0; each.Next(); n++ {
						if err := call(n); err != nil {
							b.Fatal(err)
						}
					}
				})
			})
		}
	}
}
