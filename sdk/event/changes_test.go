package event_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/reeveproject/reeve/sdk/event"
)

func TestChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var value event.Value[int]
		ctx, cancel := context.WithCancel(t.Context())
		var seen []int
		done := make(chan struct{})
		go func() {
			defer close(done)
			for now := range value.Changes(ctx) {
				seen = append(seen, now)
				if now == 3 {
					value.Set(4)
					value.Set(5) // before the next turn
				}
			}
		}()
		for _, now := range []int{1, 2, 3} {
			synctest.Wait()
			value.Set(now)
		}
		synctest.Wait()
		cancel()
		<-done
		if want := []int{1, 2, 3, 5}; !slices.Equal(seen, want) {
			t.Errorf("seen %v, want %v", seen, want)
		}
		for now := range value.Changes(ctx) {
			t.Errorf("%d comes after the end of the context", now)
		}
		for now := range value.Changes(t.Context()) {
			if now != 5 {
				t.Errorf("got %d", now)
			}
			break
		}
	})
}

func ExampleValue_Changes() {
	state := event.New("starting")
	for now := range state.Changes(context.Background()) {
		fmt.Println(now)
		if now == "ready" {
			break
		}
		state.Set("ready")
	}
	// Output:
	// starting
	// ready
}
