package consensus_test

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/reeveproject/reeve/sdk/consensus"
)

func newClient(t *testing.T, store *store) *consensus.Client {
	t.Helper()
	core := newCore(t)
	core.answer.Set(open(store))
	client, err := consensus.Dial(shortly(t), core)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return client
}

// keys is all keys of the store, as etcd itself has them.
func (s *store) keys() []string {
	s.t.Helper()
	raw, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + s.socket()}})
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = raw.Close() }()
	found, err := raw.Get(shortly(s.t), "\x00", clientv3.WithFromKey(), clientv3.WithKeysOnly())
	if err != nil {
		s.t.Fatal(err)
	}
	var keys []string
	for _, kv := range found.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys
}

func put(t *testing.T, client *consensus.Client, key, value string) {
	t.Helper()
	if _, err := client.Put(shortly(t), key, value); err != nil {
		t.Fatal(err)
	}
}

func wantValue(t *testing.T, client *consensus.Client, key, want string) {
	t.Helper()
	found, err := client.Get(shortly(t), key)
	switch {
	case err != nil:
		t.Error(err)
	case len(found.Kvs) != 1 || string(found.Kvs[0].Value) != want || string(found.Kvs[0].Key) != key:
		t.Errorf("%s: want %q, got %v", key, want, found.Kvs)
	}
}

func TestKeysAreBelowThePrefix(t *testing.T) {
	store := newStore(t)
	client := newClient(t, store)
	put(t, client, "a", "1")
	deeper := client.Sub("deep").Sub("er")
	put(t, deeper, "a", "2")
	wantValue(t, client, "a", "1")
	wantValue(t, deeper, "a", "2")
	wantValue(t, client, "deep/er/a", "2")
	if got, want := deeper.Prefix(), "/reeve/users/lighthouse/deep/er/"; got != want {
		t.Errorf("prefix %q, want %q", got, want)
	}
	if got := deeper.User(); got != "lighthouse" {
		t.Errorf("user %q", got)
	}
	keys := store.keys()
	if len(keys) != 2 || keys[0] != "/reeve/users/lighthouse/a" || keys[1] != "/reeve/users/lighthouse/deep/er/a" {
		t.Errorf("the store has %q", keys)
	}
	// All keys of a client are those below its prefix, and no others.
	all, err := client.Sub("deep").Get(shortly(t), "", clientv3.WithPrefix())
	if err != nil || len(all.Kvs) != 1 || string(all.Kvs[0].Key) != "er/a" {
		t.Errorf("got %v, %v", all.Kvs, err)
	}
}

func TestSubNames(t *testing.T) {
	client := newClient(t, newStore(t))
	for _, name := range []string{"", "/", "/a"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Sub(%q) does not panic", name)
				}
			}()
			client.Sub(name)
		}()
	}
}

// Sessions, leases, elections and watches of etcd's own packages work inside the prefix.
func TestConcurrency(t *testing.T) {
	store := newStore(t)
	sub := newClient(t, store).Sub("election")
	session, err := concurrency.NewSession(sub.Client, concurrency.WithContext(shortly(t)))
	if err != nil {
		t.Fatal(err)
	}
	election := concurrency.NewElection(session, "leader")
	if err := election.Campaign(shortly(t), "me"); err != nil {
		t.Fatal(err)
	}
	for _, key := range store.keys() {
		if len(key) < len(sub.Prefix()) || key[:len(sub.Prefix())] != sub.Prefix() {
			t.Errorf("the key %q is outside of the prefix", key)
		}
	}
	if err := session.Close(); err != nil {
		t.Error(err)
	}
	if keys := store.keys(); len(keys) != 0 {
		t.Errorf("the end of the session leaves %q", keys)
	}
}

func next(t *testing.T, watch clientv3.WatchChan) clientv3.WatchResponse {
	t.Helper()
	select {
	case response := <-watch:
		return response
	case <-shortly(t).Done():
		t.Fatal("the watch is silent")
		return clientv3.WatchResponse{}
	}
}

func TestCloseOfSub(t *testing.T) {
	store := newStore(t)
	client := newClient(t, store)
	sub := client.Sub("sub")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watch := client.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	subWatch := sub.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	next(t, watch)
	next(t, subWatch)
	for range 2 {
		if err := sub.Close(); err != nil {
			t.Error(err)
		}
	}
	if response, open := <-subWatch; open {
		t.Errorf("the watch of a closed client delivers %v", response)
	}
	put(t, client, "a", "1")
	if response := next(t, watch); len(response.Events) != 1 || string(response.Events[0].Kv.Key) != "a" {
		t.Errorf("got %v", response)
	}
	put(t, client.Sub("sub"), "b", "2")
	wantValue(t, client, "sub/b", "2")
}

// Close ends all that was opened, though nobody reads the watches.
func TestCloseEndsSubs(t *testing.T) {
	store := newStore(t)
	client := newClient(t, store)
	sub := client.Sub("sub")
	watch := sub.Watch(t.Context(), "", clientv3.WithPrefix())
	put(t, sub, "a", "1")
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	for range watch {
		t.Log("an event that came before the end")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := sub.Put(ctx, "a", "2"); err == nil {
		t.Error("a sub-client works after its parent was closed")
	}
	if _, err := client.Sub("late").Put(ctx, "a", "2"); err == nil {
		t.Error("a sub-client of a closed client works")
	}
}

// A client goes on by itself, watches included, when the store was restarted at the same socket.
func TestRestartOfTheStore(t *testing.T) {
	store := newStore(t)
	client := newClient(t, store)
	watch := client.Watch(t.Context(), "", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	next(t, watch)
	put(t, client, "a", "1")
	next(t, watch)
	store.stop()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := client.Put(ctx, "a", "2"); err == nil {
		t.Error("a write succeeded without a store")
	}
	store.start()
	wantValue(t, client, "a", "1")
	put(t, client, "a", "3")
	if response := next(t, watch); len(response.Events) != 1 || string(response.Events[0].Kv.Value) != "3" {
		t.Errorf("got %v", response)
	}
}
