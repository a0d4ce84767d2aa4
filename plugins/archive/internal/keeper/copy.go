package keeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/reeveproject/reeve/plugins/archive/internal/curator"
)

// sourceError is why a snapshot could not be read: the place has no part in it.
type sourceError struct{ error }

func (e *sourceError) Unwrap() error { return e.error }

// copy makes a copy. The error is a *sourceError if the snapshot cannot be read.
func (r *run) copy(ctx context.Context, place Place, one curator.Snapshot) error {
	moving := &moving{moved: r.watch.move}
	r.watch.move()
	from, err := r.curator.Read(ctx, one)
	if err != nil {
		moving.failed.Store(&err)
	} else {
		defer func() { _ = from.Close() }()
		moving.from = from
		err = place.Put(ctx, one.Name, one.Bytes, moving)
	}
	switch failed := moving.failed.Load(); {
	case err == nil:
		return nil
	case errors.Is(context.Cause(ctx), errStalled):
		return fmt.Errorf("nothing has moved for %s while %s was copied to %s: see whether that place answers, and the curator of this node", r.stallTime, one, place.Place())
	case failed != nil:
		return &sourceError{fmt.Errorf("cannot read the snapshot %s of this node's curator: %w", one, *failed)}
	}
	return err
}

// moving notes that something moves, and by what reading has failed.
type moving struct {
	from   io.Reader
	moved  func()
	failed atomic.Pointer[error]
}

// Read implements io.Reader.
func (m *moving) Read(into []byte) (int, error) {
	n, err := m.from.Read(into)
	if err != nil && err != io.EOF {
		m.failed.Store(&err)
	}
	m.moved()
	return n, err
}
