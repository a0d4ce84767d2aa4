package nodes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// KeepAlive implements clusterv1.NodeServiceServer. One heartbeat of a node is under way at a time: the next one is taken when it was answered, so that a store which is slow has the
// heartbeats of many nodes in one exchange, and no more of them than there are streams.
func (s *Service) KeepAlive(stream grpc.BidiStreamingServer[clusterv1.KeepAliveRequest, clusterv1.KeepAliveResponse]) error {
	id, err := s.calls(stream.Context())
	if err != nil {
		return err
	}
	ctx, end := s.paces.open(stream.Context(), id)
	defer end()
	// A call to receive ends with the connection only, and a stream also when the curator stops.
	beats := make(chan error)
	go func() {
		for err := error(nil); err == nil; {
			err = receive(stream)
			select {
			case beats <- err:
			case <-ctx.Done():
				return
			}
		}
	}()
	response := &clusterv1.KeepAliveResponse{TtlSeconds: uint32(s.config.HeartbeatTTL / time.Second)}
	lease := clientv3.NoLease
	for {
		select {
		case err = <-beats:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if panicked := (*panickedError)(nil); errors.As(err, &panicked) {
			panic(panicked.cause) // here it is rescued, as that of any call
		}
		if err != nil {
			return err
		}
		// Each is an exchange with the store.
		if err := s.paces.calls(id, s.config.Now()); err != nil {
			return err
		}
		// The heartbeat may go by another lease by now, if the node was at another curator in between. As long as this one has not heard that it goes by the lease that was renewed here, the
		// store is asked.
		if snapshot, ok := s.config.Snapshots.Get(); !ok || snapshot.Beats[id] != lease {
			lease = clientv3.NoLease
		}
		if lease, err = s.config.Store.Beat(ctx, id, s.config.HeartbeatTTL, lease); err != nil {
			return err
		}
		if err := stream.Send(response); err != nil {
			return err
		}
	}
}

// panickedError says what a call to receive panicked of.
type panickedError struct{ cause string }

func (e *panickedError) Error() string { return e.cause }

// receive takes the next heartbeat. It decodes it and asks whether its node still stands, in a goroutine of its own in which a panic would end the curator.
func receive(stream grpc.BidiStreamingServer[clusterv1.KeepAliveRequest, clusterv1.KeepAliveResponse]) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = &panickedError{fmt.Sprintf("%v\n%s", cause, debug.Stack())}
		}
	}()
	_, err = stream.Recv()
	return err
}
