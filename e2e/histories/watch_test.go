package histories_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/reeveproject/reeve/e2e/internal/history"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// seen is what a watcher saw of a node.
type seen struct {
	state history.NodeState
	// back is the first time that it was sent back to an older record; empty: it never was.
	back string
}

// watcher watches a node by one way to the cluster API, through all faults. A stream that breaks is begun again; one that is open is left alone, however long it is silent.
type watcher struct {
	name string
	node string
	seen event.Value[seen]
}

// watch watches until the context ends; watching counts the goroutines.
func watch(ctx context.Context, access *access, node string, watching *sync.WaitGroup) *watcher {
	w := &watcher{name: access.name, node: node}
	watching.Go(func() {
		for ctx.Err() == nil {
			w.once(ctx, access)
			select {
			case <-ctx.Done():
			case <-time.After(waitPace):
			}
		}
	})
	return w
}

// once watches until the stream breaks.
func (w *watcher) once(ctx context.Context, access *access) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := access.api.WatchNode(ctx, &clusterv1.WatchNodeRequest{NodeId: w.node}, grpc.WaitForReady(true))
	if err != nil {
		return
	}
	for {
		response, err := stream.Recv()
		if err != nil {
			return
		}
		state := stateOf(response.GetNode().GetRecord())
		w.seen.Update(func(s seen) seen {
			if state.Generation < s.state.Generation && s.back == "" {
				s.back = fmt.Sprintf("from generation %d to %d", s.state.Generation, state.Generation)
			}
			s.state = state
			return s
		})
	}
}

// watched waits until all watchers have seen the newest, together for as long as the patience lasts, and says what is wrong with what they saw.
func (s *scene) watched(t *testing.T, newest map[string]history.NodeState) (findings []history.Finding) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, w := range s.watchers {
		findings = append(findings, w.findings(ctx, newest[w.node])...)
	}
	return findings
}

// findings waits until the watcher has seen the newest, and says what is wrong with what it saw.
func (w *watcher) findings(ctx context.Context, newest history.NodeState) (findings []history.Finding) {
	// A write whose outcome nobody knows may have been made since.
	last, err := w.seen.Wait(ctx, func(s seen) bool { return s.state == newest || s.state.Generation > newest.Generation })
	if err != nil {
		last, _ = w.seen.Get()
		findings = append(findings, history.Finding{Verdict: history.Violated, Problem: fmt.Sprintf(
			"who watches node %s by %s has lost the newest: it is %+v, and the last that was seen is %+v", w.node, w.name, newest, last.state)})
	}
	if last.back != "" {
		findings = append(findings, history.Finding{Verdict: history.Violated, Problem: fmt.Sprintf(
			"who watches node %s by %s was sent back %s", w.node, w.name, last.back)})
		// It is said once.
		w.seen.Update(func(s seen) seen { s.back = ""; return s })
	}
	return findings
}
