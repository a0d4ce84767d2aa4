package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/reeveproject/reeve/plugins/curator/internal/cache"
	"github.com/reeveproject/reeve/sdk/event"
)

const (
	// handshakeAnswered is how long the curator's own listener may take to answer a handshake, on a machine that does much else.
	handshakeAnswered = 10 * time.Second
	// behindAtMost is how long the cache may lag behind a store that answers. It takes milliseconds; a watch that broke is made again within seconds.
	behindAtMost = 30 * time.Second
)

// Health is what a curator's health is judged by: whether its server answers and its listeners accept, and whether its cache follows the store. That the store is away makes no
// curator sick: another process would not reach it either.
type Health struct {
	mu        sync.Mutex
	door      door // nil while nothing is served
	snapshots *event.Value[*cache.Snapshot]
	away      bool      // the store did not answer when it was last asked
	epoch     uint64    // what it answered
	behind    time.Time // since when the cache has not reached it; zero: it has
}

// door is where callers come in.
type door interface {
	// dial connects to the server within the process.
	dial(ctx context.Context) (net.Conn, error)
	// refusing returns why nobody can connect from outside, or nil.
	refusing() error
}

// entry is the door of a server.
type entry struct {
	*inside
	*peers
}

func (h *Health) serving(door door, snapshots *event.Value[*cache.Snapshot]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.door, h.snapshots = door, snapshots
}

func (h *Health) stopped() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.door, h.snapshots, h.away, h.epoch, h.behind = nil, nil, false, 0, time.Time{}
}

// probed is told what the store answered.
func (h *Health) probed(epoch uint64, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.away = err != nil; h.away || h.snapshots == nil {
		h.behind = time.Time{}
		return
	}
	snapshot, _ := h.snapshots.Get()
	switch h.epoch = epoch; {
	case snapshot != nil && snapshot.Epoch >= epoch:
		h.behind = time.Time{}
	case h.behind.IsZero():
		h.behind = time.Now()
	}
}

// Check returns what is wrong with the curator that a new process could mend.
func (h *Health) Check(ctx context.Context) error {
	h.mu.Lock()
	door, away, behind := h.door, h.away, h.behind
	h.mu.Unlock()
	if door == nil || away {
		return nil // there is nothing to serve yet, or nothing to serve from
	}
	if since := time.Since(behind); !behind.IsZero() && since > behindAtMost {
		return fmt.Errorf("the curator's view of the cluster has been behind the store for %v, which answers", since.Round(time.Second))
	}
	if err := door.refusing(); err != nil {
		return err
	}
	return answers(ctx, door)
}

// answers has the server answer a handshake. How it answers does not matter, only that somebody does.
func answers(ctx context.Context, door door) error {
	bounded, cancel := context.WithTimeout(ctx, handshakeAnswered)
	defer cancel()
	connection, err := door.dial(bounded)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("nobody accepts connections to the cluster API: %w", err)
	}
	defer connection.Close()
	// Nothing is sent that would be worth hiding, and nothing of what comes is believed.
	err = tls.Client(connection, &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true}).HandshakeContext(bounded)
	if silent := net.Error(nil); bounded.Err() != nil || errors.As(err, &silent) && silent.Timeout() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("the cluster API does not answer: no handshake within %v", handshakeAnswered)
	}
	return nil
}
