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

// shared runs a function of the role for whoever asks, never twice at once: callers that ask while it runs wait for the same result. The zero value
// is ready for use.
type shared[T any] struct {
	mu      sync.Mutex
	current *turn[T] // nil while the function does not run
}

// turn is one run of the function.
type turn[T any] struct {
	cancel  context.CancelFunc
	waiting int
	// abandoned says that nobody waits for the result any more and that ctx was cancelled. The result then says nothing about the role: new callers
	// wait for the end of this run, and start another.
	abandoned bool
	// ended is closed when result and err are set.
	ended  chan struct{}
	result T
	err    error
}

// ask returns the function's result, or ctx's gRPC status if ctx ends first. The function's context ends with the instance's services, and when
// nobody waits any more. A function that does not return is not called again, and costs one goroutine.
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

// join returns the running turn, or begins one, and reports whether the caller may use its result.
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

// guard runs a function of the role in a goroutine and passes its error to ended. A panic, whose stack is logged, and a runtime.Goexit become errors.
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
