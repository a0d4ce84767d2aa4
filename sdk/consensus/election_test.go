package consensus_test

import (
	"context"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/reeveproject/reeve/sdk/consensus"
	"github.com/reeveproject/reeve/sdk/consensus/consensustest"
)

// candidates waits until so many stand for the election "keeper", and returns their keys, the one that has won first.
func candidates(t *testing.T, client *consensus.Client, want int) []string {
	t.Helper()
	ctx := shortly(t)
	for {
		found, err := client.Get(ctx, "keeper/", clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
		if err != nil {
			t.Fatalf("%d candidates are not there: %v", want, err)
		}
		if len(found.Kvs) != want {
			watching, stop := context.WithCancel(ctx)
			<-client.Watch(watching, "keeper/", clientv3.WithPrefix(), clientv3.WithRev(found.Header.Revision+1))
			stop()
			continue
		}
		var keys []string
		for _, kv := range found.Kvs {
			keys = append(keys, string(kv.Key))
		}
		return keys
	}
}

func campaign(t *testing.T, client *consensus.Client, options ...consensus.ElectionOption) *consensus.Term {
	t.Helper()
	term, err := consensus.NewElection(client, "keeper", options...).Campaign(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return term
}

// campaignBeside campaigns while the test goes on.
func campaignBeside(t *testing.T, client *consensus.Client) <-chan *consensus.Term {
	won := make(chan *consensus.Term, 1)
	ctx := shortly(t)
	go func() {
		term, err := consensus.NewElection(client, "keeper").Campaign(ctx)
		if err != nil {
			t.Error(err)
		}
		won <- term
	}()
	return won
}

// wrote tries to write what only the holder of a term may.
func wrote(t *testing.T, client *consensus.Client, term *consensus.Term, value string) bool {
	t.Helper()
	done, err := client.Txn(shortly(t)).If(term.Fence()).Then(clientv3.OpPut("kept", value)).Commit()
	if err != nil {
		t.Fatal(err)
	}
	return done.Succeeded
}

// wantOver waits until a term is over.
func wantOver(t *testing.T, term *consensus.Term) {
	t.Helper()
	select {
	case <-term.Context().Done():
	case <-shortly(t).Done():
		t.Fatal("the term is not over")
	}
	if cause := context.Cause(term.Context()); !errors.Is(cause, consensus.ErrTermOver) {
		t.Errorf("it is over since: %v", cause)
	}
}

func TestElection(t *testing.T) {
	store := consensustest.NewStore(t)
	one, two := store.Client(t, "keeper"), store.Client(t, "keeper")
	first := campaign(t, one)
	won := campaignBeside(t, two)
	candidates(t, one, 2)
	select {
	case <-won:
		t.Fatal("there are two winners")
	default:
	}
	if !wrote(t, one, first, "1") || first.Context().Err() != nil {
		t.Error("the winner cannot write")
	}
	for range 2 {
		first.Resign()
	}
	wantOver(t, first)
	second := <-won
	if second == nil {
		t.FailNow()
	}
	if wrote(t, one, first, "1") || !wrote(t, two, second, "2") {
		t.Error("the writes are not fenced by the second term")
	}
	wantValue(t, one, "kept", "2")
	second.Resign()
	candidates(t, one, 0)
	third := campaign(t, one)
	third.Resign()
}

// Whoever has lost the election cannot write, whether he knows it or not, and learns of it.
func TestDeposed(t *testing.T) {
	for name, depose := range map[string]func(*testing.T, *consensus.Client, string) error{
		"its key is taken away": func(t *testing.T, client *consensus.Client, key string) error {
			_, err := client.Delete(shortly(t), key)
			return err
		},
		"its lease is revoked": func(t *testing.T, client *consensus.Client, key string) error {
			found, err := client.Get(shortly(t), key)
			if err == nil {
				_, err = client.Revoke(shortly(t), clientv3.LeaseID(found.Kvs[0].Lease))
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := consensustest.NewStore(t)
			one, two := store.Client(t, "keeper"), store.Client(t, "keeper")
			old := campaign(t, one)
			defer old.Resign()
			won := campaignBeside(t, two)
			if err := depose(t, two, candidates(t, two, 2)[0]); err != nil {
				t.Fatal(err)
			}
			present := <-won
			if present == nil {
				t.FailNow()
			}
			defer present.Resign()
			if wrote(t, one, old, "old") || !wrote(t, two, present, "new") {
				t.Error("the writes are not fenced")
			}
			wantOver(t, old)
			if present.Context().Err() != nil {
				t.Error("the present term is over too")
			}
		})
	}
}

// A term is over that the store does not hear of for its TTL, and another one can be won when the store is back.
func TestStoreIsAwayPastTheTTL(t *testing.T) {
	store := consensustest.NewStore(t)
	client := store.Client(t, "keeper")
	term := campaign(t, client, consensus.WithTTL(time.Millisecond)) // the shortest one: a second
	store.Stop()
	wantOver(t, term)
	won := campaignBeside(t, client)
	store.Start()
	if next := <-won; next != nil {
		next.Resign()
	}
	term.Resign()
}

// A restart of the store, which keeps its leases, costs nobody a term, and none of those who wait their place.
func TestElectionOutlivesARestartOfTheStore(t *testing.T) {
	store := consensustest.NewStore(t)
	one, two := store.Client(t, "keeper"), store.Client(t, "keeper")
	term := campaign(t, one, consensus.WithTTL(time.Hour))
	won := campaignBeside(t, two)
	candidates(t, one, 2)
	put(t, one, "kept", "0")
	store.Stop()
	store.Start()
	wantValue(t, one, "kept", "0") // unlike a write, a read is tried again while the client finds the store
	if !wrote(t, one, term, "1") || term.Context().Err() != nil {
		t.Errorf("the term is over: %v", context.Cause(term.Context()))
	}
	term.Resign()
	if next := <-won; next != nil {
		next.Resign()
	}
}

// A term whose candidate's key has gone is not won, and the candidate stands again.
func TestCandidateThatIsForgotten(t *testing.T) {
	store := consensustest.NewStore(t)
	one, two := store.Client(t, "keeper"), store.Client(t, "keeper")
	first := campaign(t, one)
	won := campaignBeside(t, two)
	forgotten := candidates(t, one, 2)[1]
	if _, err := one.Delete(shortly(t), forgotten); err != nil {
		t.Fatal(err)
	}
	first.Resign()
	second := <-won
	if second == nil {
		t.FailNow()
	}
	defer second.Resign()
	if now := candidates(t, one, 1); now[0] == forgotten || !wrote(t, two, second, "2") {
		t.Errorf("candidates %v, one was forgotten: %s", now, forgotten)
	}
}

func TestCampaignEnds(t *testing.T) {
	store := consensustest.NewStore(t)
	one, two := store.Client(t, "keeper"), store.Client(t, "keeper")
	term := campaign(t, one)
	t.Run("with its context", func(t *testing.T) {
		stopped := errors.New("stopped by the test")
		ctx, cancel := context.WithCancelCause(t.Context())
		failed := make(chan error)
		go func() {
			_, err := consensus.NewElection(two, "keeper").Campaign(ctx)
			failed <- err
		}()
		candidates(t, one, 2)
		cancel(stopped)
		if err := <-failed; !errors.Is(err, stopped) {
			t.Errorf("got: %v", err)
		}
		candidates(t, one, 1)
	})
	t.Run("with its client", func(t *testing.T) {
		failed := make(chan error)
		go func() {
			_, err := consensus.NewElection(two, "keeper").Campaign(t.Context())
			failed <- err
		}()
		candidates(t, one, 2)
		if err := two.Close(); err != nil {
			t.Error(err)
		}
		if err := <-failed; err == nil {
			t.Error("it was won")
		}
	})
	// So does a term that was won.
	if err := one.Close(); err != nil {
		t.Error(err)
	}
	wantOver(t, term)
	term.Resign()
}

// A term is over with the context of the campaign, without a word of the store's.
func TestTermEndsWithItsContext(t *testing.T) {
	client := consensustest.NewStore(t).Client(t, "keeper")
	ctx, cancel := context.WithCancel(t.Context())
	term, err := consensus.NewElection(client, "keeper").Campaign(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if cause := context.Cause(term.Context()); !errors.Is(cause, context.Canceled) {
		t.Errorf("got: %v", cause)
	}
	term.Resign()
	candidates(t, client, 0)
}

// What waiting does not mend is said at once.
func TestCampaignIsRefused(t *testing.T) {
	client := consensustest.NewStore(t).Client(t, "keeper")
	client.Lease = full{client.Lease}
	if _, err := consensus.NewElection(client, "keeper").Campaign(t.Context()); !errors.Is(err, consensus.ErrOverQuota) {
		t.Errorf("got: %v", err)
	}
}

// full gives no leases.
type full struct{ clientv3.Lease }

func (full) Grant(context.Context, int64) (*clientv3.LeaseGrantResponse, error) {
	return nil, consensus.ErrOverQuota
}

func TestElectionNames(t *testing.T) {
	for _, name := range []string{"", "/", "a/b"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("NewElection(%q) does not panic", name)
				}
			}()
			consensus.NewElection(nil, name)
		}()
	}
}
