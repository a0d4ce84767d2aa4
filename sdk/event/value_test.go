package event_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reeveproject/reeve/sdk/event"
	"github.com/reeveproject/reeve/sdk/leaktest"
)

func TestMain(m *testing.M) { leaktest.VerifyTestMain(m) }

func TestGet(t *testing.T) {
	var value event.Value[int]
	if got, set := value.Get(); got != 0 || set {
		t.Errorf("before Set: %d, %t", got, set)
	}
	value.Set(0)
	if got, set := value.Get(); got != 0 || !set {
		t.Errorf("after Set(0): %d, %t", got, set)
	}
	value.Update(func(now int) int { return now + 2 })
	value.Update(func(now int) int { return now * 3 })
	if got, _ := value.Get(); got != 6 {
		t.Errorf("after Update: %d", got)
	}
	if got, set := event.New("x").Get(); got != "x" || !set {
		t.Errorf("New: %q, %t", got, set)
	}
}

func TestNextWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var value event.Value[int]
		watcher := value.Watch()
		got := make(chan int)
		go func() {
			for range 2 {
				now, err := watcher.Next(t.Context())
				if err != nil {
					t.Error(err)
				}
				got <- now
			}
		}()
		synctest.Wait()
		select {
		case now := <-got:
			t.Fatalf("got %d before anything was set", now)
		default:
		}
		value.Set(1)
		if now := <-got; now != 1 {
			t.Errorf("got %d", now)
		}
		synctest.Wait()
		select {
		case now := <-got:
			t.Fatalf("got %d though nothing has changed", now)
		default:
		}
		value.Set(1) // the same value, set again, is a change
		if now := <-got; now != 1 {
			t.Errorf("got %d", now)
		}
	})
}

// A watcher that does not look does not hold up the writer, and sees the newest value when it looks, once.
func TestSlowWatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var value event.Value[int]
		slow, other := value.Watch(), value.Watch()
		for n := range 1000 {
			value.Set(n)
		}
		for _, watcher := range []*event.Watcher[int]{slow, other} {
			if now, err := watcher.Next(t.Context()); now != 999 || err != nil {
				t.Errorf("got %d, %v", now, err)
			}
			select {
			case <-watcher.Changed():
				t.Error("changed, though everything was seen")
			default:
			}
		}
	})
}

func TestNextEndsWithTheContext(t *testing.T) {
	value := event.New(1)
	watcher := value.Watch()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	// What is there is returned all the same: a watcher that has something to say does not ask whether it is too late.
	if now, err := watcher.Next(ctx); now != 1 || err != nil {
		t.Errorf("got %d, %v", now, err)
	}
	if now, err := watcher.Next(ctx); now != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("got %d, %v", now, err)
	}
}

func TestChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var value event.Value[int]
		watcher := value.Watch()
		changed := watcher.Changed()
		go value.Set(1)
		<-changed
		<-watcher.Changed() // still, since nobody has looked
		if now, err := watcher.Next(t.Context()); now != 1 || err != nil {
			t.Errorf("got %d, %v", now, err)
		}
	})
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		value := event.New(0)
		go func() {
			for n := range 10 {
				time.Sleep(time.Second) // synthetic: until everybody waits
				value.Set(n)
			}
		}()
		if now, err := value.Wait(t.Context(), func(now int) bool { return now >= 7 }); now != 7 || err != nil {
			t.Errorf("got %d, %v", now, err)
		}
		if now, err := value.Wait(t.Context(), func(int) bool { return true }); now != 7 || err != nil {
			t.Errorf("the present value: got %d, %v", now, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := value.Wait(ctx, func(int) bool { return false }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

// Every reader sees the values in their order and ends with the last one, whatever the others do.
func TestManyReaders(t *testing.T) {
	const last = 500
	var value event.Value[int]
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			watcher := value.Watch()
			for before := -1; before < last; {
				now, err := watcher.Next(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if now <= before {
					t.Errorf("%d after %d", now, before)
				}
				before = now
			}
		})
	}
	for range last {
		value.Update(func(now int) int { return now + 1 })
	}
	all.Wait()
}

func ExampleValue_Wait() {
	var state event.Value[string]
	go func() {
		state.Set("starting")
		state.Set("ready")
	}()
	now, err := state.Wait(context.Background(), func(now string) bool { return now == "ready" })
	fmt.Println(now, err)
	// Output: ready <nil>
}
