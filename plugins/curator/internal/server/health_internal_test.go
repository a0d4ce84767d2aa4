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
		nowhere := &entry{inside: newInside(), peers: newPeers()}
		_ = nowhere.Close()
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

// A server that does not accept, or does not answer, is not well.
func TestHealthOfTheServer(t *testing.T) {
	door := &entry{inside: newInside(), peers: newPeers()}
	health := new(Health)
	health.serving(door, new(event.Value[*cache.Snapshot]))
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := health.Check(short); err == nil {
		t.Error("a server that does not accept is well")
	}
	accepted := make(chan net.Conn, 1)
	waits, giveUp := context.WithCancel(t.Context())
	go func() {
		connection, _ := door.Accept()
		accepted <- connection
		giveUp()
	}()
	if err := health.Check(waits); err == nil {
		t.Error("a server that does not answer is well")
	}
	_ = (<-accepted).Close()
	if err := door.Close(); err != nil {
		t.Fatal(err)
	}
	if err := health.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "nobody accepts") {
		t.Errorf("a server that is gone: %v", err)
	}
}

// A listener that cannot accept for long is what a new process mends: it has other descriptors.
func TestHealthOfTheListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peers := newPeers()
		full := &peerListener{Listener: refuser{}, peers: peers}
		for range 9 {
			_, _ = full.Accept()
			time.Sleep(time.Second)
		}
		if err := peers.refusing(); err != nil {
			t.Errorf("too soon: %v", err)
		}
		for range 3 {
			_, _ = full.Accept()
			time.Sleep(time.Second)
		}
		if err := peers.refusing(); err == nil || !strings.Contains(err.Error(), errFull.Error()) {
			t.Errorf("after 12 s: %v", err)
		}
		time.Sleep(refusingEvery)
		if err := peers.refusing(); err != nil {
			t.Errorf("it waits for connections again: %v", err)
		}
		_, _ = full.Accept()
		if err := peers.refusing(); err != nil {
			t.Errorf("once more: %v", err)
		}
	})
}

var errFull = errors.New("too many open files")

// refuser is a listener of a process that has no descriptors left.
type refuser struct{ net.Listener }

func (refuser) Accept() (net.Conn, error) { return nil, errFull }
