package store

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// turns is a together whose turns a test holds back, and what they were made for.
type turns struct {
	*together[int, int]
	made [][]int
	hold chan struct{}
	fail error
	// failAt is the key whose part fails; 0: all do, if any.
	failAt int
	// panics has turns panic.
	panics bool
}

func newTurns() *turns {
	r := &turns{hold: make(chan struct{})}
	r.together = newTogether(1, 3, func(ctx context.Context, keys []int) (map[int]int, error) {
		<-r.hold
		if r.panics {
			panic("a mistake")
		}
		r.made = append(r.made, slices.Clone(keys))
		answers := make(map[int]int)
		for _, key := range keys {
			if key != 0 { // which has none
				answers[key] = 10 * key
			}
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if r.fail != nil && (r.failAt == 0 || slices.Contains(keys, r.failAt)) {
			return nil, r.fail
		}
		return answers, nil
	})
	return r
}

type answered struct {
	value int
	is    bool
	err   error
}

// ask makes calls one after another, and returns what they answer once they do.
func (r *turns) ask(ctx context.Context, keys ...int) []chan answered {
	var answers []chan answered
	for _, key := range keys {
		answer := make(chan answered, 1)
		answers = append(answers, answer)
		go func() {
			value, is, err := r.call(ctx, key)
			answer <- answered{value, is, err}
		}()
		synctest.Wait()
	}
	return answers
}

// What comes while the store answers is asked for together, once, in parts that the store takes, and not by what was asked before it came.
func TestCallsAreMadeTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTurns()
		answers := r.ask(t.Context(), 1, 1, 2, 3, 4, 0, 4, 1)
		close(r.hold)
		for i, want := range []answered{{10, true, nil}, {10, true, nil}, {20, true, nil}, {30, true, nil}, {40, true, nil}, {0, false, nil}, {40, true, nil}, {10, true, nil}} {
			if got := <-answers[i]; got != want {
				t.Errorf("call %d: %v, want %v", i, got, want)
			}
		}
		if want := [][]int{{1}, {1, 2, 3}, {4, 0}}; !slices.EqualFunc(r.made, want, slices.Equal) {
			t.Errorf("made %v, want %v", r.made, want)
		}
	})
}

// Those who wait for each other are made in one turn, also where nothing is under way, and one that comes later is not kept waiting by those before.
func TestCallsAreGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTurns()
		r.gather = time.Second
		close(r.hold)
		began := time.Now()
		for _, want := range []int{1, 2} {
			var answers []chan answered
			for key := range 3 {
				answers = append(answers, r.ask(t.Context(), key+1)...)
				time.Sleep(time.Second / 4)
			}
			for i, answer := range answers {
				if got := <-answer; got != (answered{10 * (i + 1), true, nil}) {
					t.Errorf("call %d: %v", i, got)
				}
			}
			if len(r.made) != want || !slices.Equal(r.made[want-1], []int{1, 2, 3}) || time.Since(began) != time.Duration(want)*time.Second {
				t.Errorf("made %v after %v", r.made, time.Since(began))
			}
		}
	})
}

// Who gives up is answered at once, and the others have what they asked for.
func TestOneWhoGivesUpTakesNobodyAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTurns()
		held := r.ask(t.Context(), 1)
		ctx, cancel := context.WithCancel(t.Context())
		gaveUp := r.ask(ctx, 2, 3)
		stays := r.ask(t.Context(), 4)
		cancel()
		synctest.Wait()
		// Also the one by whom the turn began, which goes on for the others.
		for i, answer := range gaveUp {
			select {
			case got := <-answer:
				if !errors.Is(got.err, context.Canceled) {
					t.Errorf("call %d of one who gave up: %v", i, got)
				}
			default:
				t.Errorf("call %d waits on for the store", i)
			}
		}
		close(r.hold)
		if got := <-held[0]; got != (answered{10, true, nil}) {
			t.Errorf("the first: %v", got)
		}
		if got := <-stays[0]; got != (answered{40, true, nil}) {
			t.Errorf("one who stayed: %v", got)
		}
	})
}

// A turn that panics is every waiting call's panic, and in nobody's way: not in that of those who come later either.
func TestAPanicEndsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTurns()
		r.panics = true
		var causes []chan any
		for range 3 {
			cause := make(chan any, 1)
			causes = append(causes, cause)
			go func() {
				defer func() { cause <- recover() }()
				_, _, _ = r.call(t.Context(), 1)
			}()
			synctest.Wait()
		}
		close(r.hold)
		synctest.Wait()
		for i, cause := range causes {
			select {
			case got := <-cause:
				if text, _ := got.(string); !strings.Contains(text, "a mistake") || !strings.Contains(text, "newTurns") {
					t.Errorf("call %d panicked with %v, want the cause and where it was", i, got)
				}
			default:
				t.Fatalf("call %d waits for a turn that has panicked", i)
			}
		}
		r.panics = false
		if got := <-r.ask(t.Context(), 2)[0]; got != (answered{20, true, nil}) {
			t.Errorf("one who came later: %v", got)
		}
	})
}

func TestAllHearOfAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTurns()
		r.fail = errors.New("away")
		answers := r.ask(t.Context(), 1, 2, 3)
		close(r.hold)
		for i, answer := range answers {
			if got := <-answer; !errors.Is(got.err, r.fail) {
				t.Errorf("call %d: %v", i, got)
			}
		}
	})
}

// What was answered before a part failed stays answered.
func TestAFailureKeepsWhatWasAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTurns()
		r.fail, r.failAt = errors.New("away"), 5
		answers := r.ask(t.Context(), 1, 2, 3, 4, 5, 6)
		close(r.hold)
		for i, want := range []answered{{10, true, nil}, {20, true, nil}, {30, true, nil}, {40, true, nil}, {0, false, r.fail}, {0, false, r.fail}} {
			if got := <-answers[i]; got != want {
				t.Errorf("call %d: %v, want %v", i, got, want)
			}
		}
	})
}
