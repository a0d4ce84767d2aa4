package consensus_test

import (
	"fmt"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/reeveproject/reeve/sdk/consensus"
	"github.com/reeveproject/reeve/sdk/consensus/consensustest"
	"github.com/reeveproject/reeve/sdk/internal/exampletest"
)

// What only one instance of a role does at a time is done for as long as a term's context lasts, and written by transactions that compare its fence.
func ExampleElection() {
	exampletest.Run(func(t testing.TB) {
		ctx := t.Context()                                       // in a role that of Run
		store := consensustest.NewStore(t).Client(t, "gardener") // in a role consensus.Dial(ctx, host)

		term, err := consensus.NewElection(store, "gardener").Campaign(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		water := func() bool {
			done, err := store.Txn(ctx).If(term.Fence()).Then(clientv3.OpPut("watered", "today")).Commit()
			return err == nil && done.Succeeded
		}
		fmt.Println("in the term:", water(), term.Context().Err())
		term.Resign()
		next, err := consensus.NewElection(store, "gardener").Campaign(ctx) // in a role another instance's
		if err != nil {
			fmt.Println(err)
			return
		}
		defer next.Resign()
		fmt.Println("in the next one:", water(), term.Context().Err())
	})
	// Output:
	// in the term: true <nil>
	// in the next one: false context canceled
}
