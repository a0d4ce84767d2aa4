package server

import (
	"context"
	"sync"

	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/curator/internal/auth"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

const (
	// callerTurns is how many reads of one caller are carried out at a time. What an answer takes is known when it has been made, and a page of 4 MiB takes some fifty until then: in the
	// curator, and in the store, which bounds others and not the curator.
	callerTurns = 8
	// kindTurns is how many there are of all callers of a kind. The owner has turns that no operator takes, and an operator those that no viewer takes.
	kindTurns = callerTurns + callerTurns/2
)

// turns has people's reads wait until few enough are carried out: each caller in a line of their own. An operator's changes, also those that are only tried, are carried out one after another: to check one may take some fifty times
// what it writes. What nodes call has a pace (internal/nodes), and a stream is told what others are told too.
type turns struct {
	reads, changes func(rpc string) bool // nil: none is one

	mu    sync.Mutex
	lines map[string]*line // by caller
	kinds map[clusterv1.Caller]chan struct{}
}

// line is that of one caller.
type line struct {
	calls int           // that are in it or carried out
	turns chan struct{} // holds one for each that is carried out
}

// take waits for the turn of a call, which lasts until end is called.
func (t *turns) take(ctx context.Context, rpc string) (end func(), err error) {
	caller, _ := auth.CallerOf(ctx)
	name, all := caller.String(), callerTurns
	switch {
	case caller.Person == nil || t.reads == nil:
		return func() {}, nil
	case t.reads(rpc):
	case caller.Kind == clusterv1.Caller_CALLER_OPERATOR && t.changes(rpc):
		name, all = "changes of "+name, 1
	default:
		return func() {}, nil
	}
	own, kind := t.enter(name, all, caller.Kind)
	var taken []chan struct{}
	end = func() {
		for _, of := range taken {
			<-of
		}
		t.leave(name, own)
	}
	lines := []chan struct{}{own.turns, kind}
	if all == 1 {
		lines = lines[:1] // one waits for as long as its pace wants it to, and nobody else does
	}
	for _, of := range lines {
		select {
		case of <- struct{}{}:
			taken = append(taken, of)
		case <-ctx.Done():
			end()
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
	return end, nil
}

func (t *turns) enter(name string, all int, of clusterv1.Caller) (own *line, kind chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lines == nil {
		t.lines, t.kinds = make(map[string]*line), make(map[clusterv1.Caller]chan struct{})
	}
	if own = t.lines[name]; own == nil {
		own = &line{turns: make(chan struct{}, all)}
		t.lines[name] = own
	}
	if t.kinds[of] == nil {
		t.kinds[of] = make(chan struct{}, kindTurns)
	}
	own.calls++
	return own, t.kinds[of]
}

func (t *turns) leave(name string, own *line) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if own.calls--; own.calls == 0 {
		delete(t.lines, name)
	}
}

// takeTurn waits for the turn of a call. Who was revoked meanwhile is refused: a line may be long.
func (p *peers) takeTurn(ctx context.Context, rpc string) (end func(), err error) {
	end, err = p.turns.take(ctx, rpc)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	state := p.state
	p.mu.Unlock()
	if caller, _ := auth.CallerOf(ctx); caller.Person != nil && state != nil {
		if err := caller.Outlived(state); err != nil {
			end()
			return nil, err
		}
	}
	return end, nil
}
