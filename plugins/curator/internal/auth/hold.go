package auth

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"

	"github.com/reeveproject/reeve/plugins/curator/internal/store"
)

// hold runs a stream, and ends it when its caller is no longer the one who was admitted: the operator was revoked, the owner key replaced, or the
// certificate has ended; the node was removed, or another start of its core has called. A newcomer is held by nothing but its own record, which is its call's.
func (g *Guard) hold(ctx context.Context, caller Caller, handle func(context.Context) error) error {
	if caller.Person == nil && caller.incarnation == nil || g.config.News == nil {
		return handle(ctx)
	}
	ctx, end := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if err := g.outlasted(ctx, caller); err != nil {
			end(err)
		}
	}()
	err := handle(ctx)
	end(nil)
	<-watched
	if ended := (*endedError)(nil); errors.As(context.Cause(ctx), &ended) {
		return ended.why
	}
	return err
}

// endedError says why a caller who was admitted is not any more.
type endedError struct{ why error }

func (e *endedError) Error() string { return e.why.Error() }

func (e *endedError) Unwrap() error { return e.why }

// outlasted waits until a caller is not the one any more who was admitted, or until ctx is done, and then returns nil.
func (g *Guard) outlasted(ctx context.Context, caller Caller) error {
	if caller.Person != nil && !caller.Person.Until.IsZero() {
		until := caller.Person.Until
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, until.Sub(g.config.Now()), &endedError{unauthenticated(
			"the certificate of %s ended at %s: renew it, and call again", caller, until.UTC().Format(time.RFC3339))})
		defer cancel()
	}
	for watcher := g.config.News.Watch(); ; {
		snapshot, err := watcher.Next(ctx)
		if err != nil {
			if ended := (*endedError)(nil); errors.As(context.Cause(ctx), &ended) {
				return ended
			}
			return nil
		}
		if err := caller.Outlived(snapshot.State); err != nil {
			return &endedError{err}
		}
	}
}

// Outlived returns why a caller is not the one any more who was admitted, in a later state of the cluster.
func (c Caller) Outlived(state *store.State) error {
	if c.Person == nil {
		return c.superseded(state)
	}
	// The cache may be behind what the caller was admitted by.
	if state.Revision > c.Person.Revision && !state.HasPerson(c.Person.Operator, c.Person.ID) {
		return unauthenticated("%s is not what it was any more: the operator was revoked, or the owner key replaced", c)
	}
	return nil
}

// stands returns why a node that was admitted would not be any more, by what this curator has heard of the cluster.
func (g *Guard) stands(caller Caller) error {
	snapshot, ok := g.config.Snapshots.Get()
	if !ok || snapshot.Revision < caller.read || snapshot.Cluster == nil {
		return nil // the cache is behind what the caller was admitted by, or cannot tell, since the cluster's record is damaged
	}
	if err := caller.stands(snapshot.State); err != nil {
		return err
	}
	if caller.incarnation == nil {
		return nil
	}
	return caller.superseded(snapshot.State)
}

// admitted is the stream of a caller who was admitted.
type admitted struct {
	grpc.ServerStream
	ctx context.Context
	// stands is asked with each message of the caller, why they would not be admitted any more; nil: nobody is.
	stands func() error
}

// Context implements grpc.ServerStream.
func (s *admitted) Context() context.Context { return s.ctx }

// RecvMsg implements grpc.ServerStream.
func (s *admitted) RecvMsg(into any) error {
	err := s.ServerStream.RecvMsg(into)
	if err == nil && s.stands != nil {
		err = s.stands()
	}
	return err
}

// SendMsg implements grpc.ServerStream. Nothing is sent to one who is not admitted any more, however far the handler was.
func (s *admitted) SendMsg(message any) error {
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	return s.ServerStream.SendMsg(message)
}
