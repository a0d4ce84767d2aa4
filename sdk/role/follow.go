package role

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/sdk/event"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// Membership is the node's membership of its cluster. The first call starts to follow it. It keeps the last known value while the core is away.
func (h *Host) Membership() *event.Value[*hostv1.Membership] {
	h.once.membership.Do(func() {
		follow(h, "membership", func(ctx context.Context) (grpc.ServerStreamingClient[hostv1.WatchMembershipResponse], error) {
			return h.client.WatchMembership(ctx, &hostv1.WatchMembershipRequest{})
		}, func(response *hostv1.WatchMembershipResponse) { h.membership.Set(response.GetMembership()) })
	})
	return &h.membership
}

// Directory is the cluster's directory: its nodes, their addresses, roles, endpoints and published values. The first call starts to follow it. It
// keeps the last known value while the core is away.
func (h *Host) Directory() *event.Value[*hostv1.Directory] {
	h.once.directory.Do(func() {
		follow(h, "directory", func(ctx context.Context) (grpc.ServerStreamingClient[hostv1.WatchDirectoryResponse], error) {
			return h.client.WatchDirectory(ctx, &hostv1.WatchDirectoryRequest{})
		}, func(response *hostv1.WatchDirectoryResponse) { h.directory.Set(response.GetDirectory()) })
	})
	return &h.directory
}

// Network is the addresses of this node, the preferred one first. The first call starts to follow it. It keeps the last known value while the core is
// away.
func (h *Host) Network() *event.Value[[]string] {
	h.once.network.Do(func() {
		follow(h, "network", func(ctx context.Context) (grpc.ServerStreamingClient[hostv1.WatchNetworkResponse], error) {
			return h.client.WatchNetwork(ctx, &hostv1.WatchNetworkRequest{})
		}, func(response *hostv1.WatchNetworkResponse) {
			h.peers.Set(response.GetPeers())
			h.network.Set(response.GetAddresses())
		})
	})
	return &h.network
}

// Peers is addresses and DNS names of machines on which other nodes of the cluster may be: those that the node's operator named, then those of the curators that the node knows. A role that reaches no
// other node where it knows it to be tries there. It says nothing of who is there. The first call starts to follow it, as that of Network does.
func (h *Host) Peers() *event.Value[[]string] {
	h.Network()
	return &h.peers
}

// Operators is who operates the cluster, for a role with the grant "watch-operators". A listener with AllowOperators uses it by itself. The first
// call starts to follow it. It keeps the last known value while the core is away.
func (h *Host) Operators() *event.Value[*hostv1.Operators] {
	h.once.operators.Do(func() {
		follow(h, "operators", func(ctx context.Context) (grpc.ServerStreamingClient[hostv1.WatchOperatorsResponse], error) {
			return h.client.WatchOperators(ctx, &hostv1.WatchOperatorsRequest{})
		}, func(response *hostv1.WatchOperatorsResponse) { h.operators.Set(response.GetOperators()) })
	})
	return &h.operators
}

// follow passes every message of a stream to set, and reopens the stream when it ends, until the host is closed. It skips a message that equals the
// one before, as a restarted core often sends first.
func follow[R any, M interface {
	*R
	proto.Message
}](h *Host, name string, open func(context.Context) (grpc.ServerStreamingClient[R], error), set func(M)) {
	h.background(func() {
		var last M
		wait := firstReopen
		for h.ctx.Err() == nil {
			stream, err := open(h.ctx)
			for err == nil {
				var message *R
				if message, err = stream.Recv(); err != nil {
					break
				}
				wait = firstReopen
				if last == nil || !proto.Equal(last, M(message)) {
					last = message
					set(message)
				}
			}
			if h.ctx.Err() != nil {
				return
			}
			h.log.Debug("a stream from the core ended; opening it again", "stream", name, "error", err)
			select {
			case <-h.ctx.Done():
			case <-time.After(wait):
			}
			wait = min(2*wait, maxReconnect)
		}
	})
}

// firstReopen is the pause before a stream is first reopened. It only keeps a core that ends streams at once from being called in a tight loop; the
// connection itself waits for a core that is away.
const firstReopen = 50 * time.Millisecond
