package server

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reeveproject/reeve/plugins/curator/internal/cache"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/sdk/event"
)

// A cache that stays behind a store that answers is what a new process mends. A store that does not answer is not.
func TestHealthOfTheCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Nobody listens there: a check that comes as far as a handshake fails otherwise.
		nowhere := &net.UnixAddr{Name: "nowhere", Net: "unix"}
		snapshots := event.New(&cache.Snapshot{State: &store.State{Epoch: 7}})
		health := new(Health)
		health.serving(nowhere, snapshots)
		behind := func() bool {
			err := health.Check(t.Context())
			return err != nil && strings.Contains(err.Error(), "behind the store")
		}
		health.probed(7, nil)
		time.Sleep(2 * behindAtMost)
		if behind() {
			t.Error("the cache has reached the store")
		}
		health.probed(8, nil)
		time.Sleep(behindAtMost - time.Second)
		health.probed(9, nil)
		if behind() {
			t.Error("too soon")
		}
		time.Sleep(2 * time.Second)
		if !behind() {
			t.Error("the cache has been behind for long")
		}
		health.probed(0, errors.New("away"))
		if err := health.Check(t.Context()); err != nil {
			t.Errorf("with the store away: %v", err)
		}
		health.probed(9, nil)
		if behind() {
			t.Error("the store has just come back")
		}
		snapshots.Set(&cache.Snapshot{State: &store.State{Epoch: 9}})
		health.probed(9, nil)
		time.Sleep(2 * behindAtMost)
		if behind() {
			t.Error("the cache has caught up")
		}
		health.stopped()
		if err := health.Check(t.Context()); err != nil {
			t.Errorf("stopped: %v", err)
		}
	})
}

// A listener that nobody accepts from is silent, also where the kernel still takes connections.
func TestHealthOfTheListener(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	health := new(Health)
	health.serving(listener.Addr(), new(event.Value[*cache.Snapshot]))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := health.Check(ctx); err == nil {
		t.Error("a listener that does not answer is well")
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if err := health.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "cannot be reached") {
		t.Errorf("a listener that is closed: %v", err)
	}
}
