package consensus_test

import (
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/reeveproject/reeve/sdk/consensus/consensustest"
)

// A client may be closed while watches begin, with the store there and without: they end, and so does Close.
func TestCloseWhileWatchesBegin(t *testing.T) {
	store := consensustest.NewStore(t)
	for _, away := range []bool{false, true} {
		if away {
			store.Stop()
		}
		for range 5 {
			client := store.Client(t, "keeper")
			var watching sync.WaitGroup
			began := make(chan struct{}, 8)
			for range cap(began) {
				watching.Go(func() {
					began <- struct{}{}
					for response := range client.Watch(t.Context(), "", clientv3.WithPrefix()) {
						if response.Err() == nil {
							t.Errorf("there is nothing to see but the end, and not %v", response)
						}
					}
				})
			}
			<-began
			if err := client.Close(); err != nil {
				t.Error(err)
			}
			watching.Wait()
			if _, open := <-client.Watch(t.Context(), ""); open {
				t.Error("a closed client watches")
			}
		}
	}
}
