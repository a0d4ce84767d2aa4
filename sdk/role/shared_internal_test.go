package role

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// scripted is a function of a role's whose every run ends when the test says so, and how.
type scripted struct {
	shared   shared[int]
	instance *instance
	begun    int
	obeys    bool // whether it returns when its context ends
	results  chan int
}

func newScripted() (_ *scripted, end context.CancelFunc) {
	serving, end := context.WithCancel(context.Background())
	return &scripted{instance: &instance{log: hclog.NewNullLogger(), serving: serving}, results: make(chan int)}, end
}

func (s *scripted) run(ctx context.Context) (int, error) {
	s.begun++
	var ended <-chan struct{}
	if s.obeys {
		ended = ctx.Done()
	}
	select {
	case result := <-s.results:
		return result, ctx.Err()
	case <-ended:
		return 0, ctx.Err()
	}
}

type outcome struct {
	result int
	err    error
}

func (s *scripted) ask(ctx context.Context) <-chan outcome {
	answer := make(chan outcome, 1)
	go func() {
		result, err := s.shared.ask(ctx, s.instance, "the function", s.run)
		answer <- outcome{result, err}
	}()
	synctest.Wait()
	return answer
}

func TestWhoAsksMeanwhileGetsTheSameResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, end := newScripted()
		defer end()
		impatient, giveUp := context.WithCancel(t.Context())
		first, second, third := s.ask(impatient), s.ask(t.Context()), s.ask(t.Context())
		giveUp()
		if got := <-first; status.Code(got.err) != codes.Canceled {
			t.Errorf("who gave up was answered %v", got)
		}
		s.results <- 7
		for _, answer := range []<-chan outcome{second, third} {
			if got := <-answer; got != (outcome{result: 7}) {
				t.Errorf("answered %v", got)
			}
		}
		if s.begun != 1 {
			t.Errorf("the function ran %d times", s.begun)
		}
		fourth := s.ask(t.Context())
		s.results <- 8
		if got := <-fourth; got != (outcome{result: 8}) || s.begun != 2 {
			t.Errorf("answered %v in the run %d", got, s.begun)
		}
	})
}

// The result of a run that nobody waited for, and that was therefore told to end, is nobody's.
func TestAnAbandonedRunIsNotRunBesideAnother(t *testing.T) {
	for _, obeys := range []bool{true, false} {
		t.Run(fmt.Sprint("it obeys: ", obeys), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, end := newScripted()
				defer end()
				s.obeys = obeys
				impatient, giveUp := context.WithCancel(t.Context())
				first := s.ask(impatient)
				giveUp()
				<-first
				synctest.Wait()
				second, third := s.ask(t.Context()), s.ask(t.Context())
				if !obeys {
					if s.begun != 1 {
						t.Fatalf("the function runs %d times at once", s.begun)
					}
					s.results <- 7
				}
				synctest.Wait()
				s.results <- 8
				for _, answer := range []<-chan outcome{second, third} {
					if got := <-answer; got != (outcome{result: 8}) {
						t.Errorf("answered %v", got)
					}
				}
				if s.begun != 2 {
					t.Errorf("the function ran %d times", s.begun)
				}
			})
		})
	}
}

func TestNobodyWaitsForAnInstanceThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, end := newScripted()
		s.obeys = true
		answer := s.ask(t.Context())
		end()
		if got := <-answer; status.Code(got.err) != codes.Canceled && !errors.Is(got.err, context.Canceled) {
			t.Errorf("answered %v", got)
		}
		synctest.Wait()
	})
}
