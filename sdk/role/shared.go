package role

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/status"
)

// shared runs a function of the role's for whoever asks for its result, and never twice at once: who asks while it runs waits for the same
// result. The zero value is ready for use.
type shared[T any] struct {
	mu      sync.Mutex
	current *turn[T] // nil: the function does not run
}

// turn is one run of the function.
type turn[T any] struct {
	cancel  context.CancelFunc
	waiting int
	// abandoned says that nobody waits for the result any more, and that the function was told so. Its result says nothing about the role: who asks
	// now waits until the function has returned, and lets it run again.
	abandoned bool
	// ended is closed when result and err are there.
	ended  chan struct{}
	result T
	err    error
}

// ask returns the result and the error of the function, or the gRPC status of ctx when that ends before. The function's own context ends with the
// instance's services, and when nobody waits for the result any more. A function that does not return is not called again, and costs one goroutine.
func (s *shared[T]) ask(ctx context.Context, i *instance, what string, function func(context.Context) (T, error)) (T, error) {
	ctx, done := i.whileServing(ctx)
	defer done()
	for {
		turn, mine := s.join(i, what, function)
		select {
		case <-turn.ended:
			if mine {
				return turn.result, turn.err
			}
		case <-ctx.Done():
			if mine {
				s.leave(turn)
			}
			var none T
			return none, status.FromContextError(ctx.Err()).Err()
		}
	}
}

// join returns the turn that runs, after it has begun one if none does, and whether the caller may have its result.
func (s *shared[T]) join(i *instance, what string, function func(context.Context) (T, error)) (_ *turn[T], mine bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		s.current = s.begin(i, what, function)
	}
	if s.current.abandoned {
		return s.current, false
	}
	s.current.waiting++
	return s.current, true
}

func (s *shared[T]) begin(i *instance, what string, function func(context.Context) (T, error)) *turn[T] {
	ctx, cancel := context.WithCancel(i.serving)
	turn := &turn[T]{cancel: cancel, ended: make(chan struct{})}
	guard(i.log, what, func() (err error) {
		turn.result, err = function(ctx)
		return err
	}, func(err error) {
		cancel()
		turn.err = err
		s.mu.Lock()
		s.current = nil
		s.mu.Unlock()
		close(turn.ended)
	})
	return turn
}

func (s *shared[T]) leave(turn *turn[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	turn.waiting--
	if turn.waiting == 0 {
		turn.abandoned = true
		turn.cancel()
	}
}

// guard runs a function of the role's in a goroutine of its own and hands its error to ended: also that of one that panics, with the stack in the
// log, and of one that ends its goroutine (runtime.Goexit), which has then ended and not vanished.
func guard(log hclog.Logger, what string, function func() error, ended func(error)) {
	go func() {
		err := errors.New(what + "'s goroutine was ended by runtime.Goexit")
		defer func() {
			if cause := recover(); cause != nil {
				log.Error(what+" panicked", "panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
				err = fmt.Errorf("panic: %v", cause)
			}
			ended(err)
		}()
		err = function()
	}()
}
