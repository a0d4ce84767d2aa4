package nodes

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/proto/limits"
)

// A node may call as often as a core with as many roles as there can be, and not as fast as the curator and its disk are. Others have their own.
func TestPaceOfANode(t *testing.T) {
	p, now := new(paces), time.Now()
	type call struct {
		name string
		make func(node string, now time.Time) error
		// atOnce is how many a core makes at once, and every how often then.
		atOnce int
		every  time.Duration
	}
	for _, call := range []call{
		{"reports", p.reports, 64, time.Second},
		{"SVIDs", p.calls, limits.ReportedInstances * 16, 15 * time.Second / limits.ReportedInstances},
	} {
		t.Run(call.name, func(t *testing.T) {
			at := now
			for n := range call.atOnce {
				if err := call.make("honest", at); err != nil {
					t.Fatalf("%d: %v", n, err)
				}
			}
			for range 1000 {
				at = at.Add(call.every)
				if err := call.make("honest", at); err != nil {
					t.Fatal(err)
				}
			}
			made := 0
			for ; made < 10*call.atOnce && call.make("hostile", at) == nil; made++ {
			}
			err := call.make("hostile", at)
			if made > 2*call.atOnce || status.Code(err) != codes.ResourceExhausted {
				t.Errorf("it makes %d at once, and then: %v", made, err)
			}
			if err := call.make("honest", at); err != nil {
				t.Errorf("another node: %v", err)
			}
			for end := at.Add(100 * call.every); at.Before(end); at = at.Add(call.every / 10) {
				if call.make("hostile", at) == nil {
					made++
				}
			}
			if most := 2*call.atOnce + 140; made > most {
				t.Errorf("%d in all, at most %d", made, most)
			}
		})
	}
}

// Of the streams of a node the oldest one ends where there are too many, and those that have ended count no more.
func TestStreamsOfANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(paces)
		var opened []context.Context
		for range 3 * mostStreams {
			_, end := p.open(t.Context(), "ant")
			end()
		}
		for range mostStreams {
			ctx, end := p.open(t.Context(), "ant")
			defer end()
			opened = append(opened, ctx)
		}
		other, end := p.open(t.Context(), "bee")
		defer end()
		for n, ctx := range append(opened, other) {
			if ctx.Err() != nil {
				t.Errorf("stream %d has ended: %v", n, context.Cause(ctx))
			}
		}
		newest, end := p.open(t.Context(), "ant")
		defer end()
		for n, ctx := range append(opened, other, newest) {
			if (ctx.Err() != nil) != (n == 0) {
				t.Errorf("stream %d: %v", n, context.Cause(ctx))
			}
		}
		if status.Code(context.Cause(opened[0])) != codes.ResourceExhausted {
			t.Errorf("it ended with %v", context.Cause(opened[0]))
		}
	})
}
