package operate

import (
	"context"
	"errors"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/storage/volume"
)

// Sealing is the wish that the node be sealed, from the first call to the answer.
type Sealing struct {
	// Asked ends when somebody asks for it.
	Asked context.Context
	ask   context.CancelFunc
	done  chan struct{}

	mu sync.Mutex
	// caller is who asked first. result is the answer, once done is closed.
	caller string
	result error
}

// NewSealing returns a wish that nobody has yet.
func NewSealing() *Sealing {
	s := &Sealing{done: make(chan struct{})}
	s.Asked, s.ask = context.WithCancel(context.Background())
	return s
}

// seal asks for it and returns the answer. Later callers get the same answer.
func (s *Sealing) seal(caller string) error {
	s.mu.Lock()
	if s.caller == "" {
		s.caller = caller
	}
	s.mu.Unlock()
	s.ask()
	<-s.done
	return s.result
}

// By returns who asked for it; empty: nobody did.
func (s *Sealing) By() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.caller
}

// ErrNotSealed answers those who asked when the node was stopping already.
var ErrNotSealed = status.Error(codes.Unavailable, "the core of this node is stopping, which closes its volume")

// Answer answers all callers, also those that come later. Call it once: when the volume is closed, or this core is not going to close it.
func (s *Sealing) Answer(err error) {
	var busy *volume.BusyError
	switch {
	case errors.As(err, &busy):
		err = status.Errorf(codes.FailedPrecondition, "the roles are stopped, and the volume is closed as soon as nothing uses it any more: %v", err)
	case err != nil && !errors.Is(err, ErrNotSealed):
		err = status.Errorf(codes.Internal, "the node could not be sealed: %v", err)
	}
	s.result = err
	close(s.done)
}
