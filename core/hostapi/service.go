package hostapi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/core/access"
	"github.com/reeveproject/reeve/core/membership"
	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/proto/hostfile"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

var _ hostv1.HostServiceServer = (*service)(nil)

// service answers one instance's calls, which rules has already permitted.
type service struct {
	hostv1.UnimplementedHostServiceServer
	config      *Config
	directories *directories
	files       *files
	remit       *plugin.Remit
	issues      *issues
	log         hclog.Logger
	// waits is how many calls wait for a file.
	waits atomic.Int32
}

func (s *service) WatchMembership(_ *hostv1.WatchMembershipRequest, stream grpc.ServerStreamingServer[hostv1.WatchMembershipResponse]) error {
	return follow(stream, s.config.Membership, func(now membership.Status) *hostv1.WatchMembershipResponse {
		message := &hostv1.Membership{
			State:       now.State,
			Reason:      now.Reason,
			NodeId:      now.NodeID,
			ClusterId:   now.ClusterID,
			TrustDomain: now.TrustDomain,
		}
		if !now.Since.IsZero() {
			message.Since = timestamppb.New(now.Since)
		}
		return &hostv1.WatchMembershipResponse{Membership: message}
	})
}

func (s *service) WatchDirectory(_ *hostv1.WatchDirectoryRequest, stream grpc.ServerStreamingServer[hostv1.WatchDirectoryResponse]) error {
	from, ok := peer.FromContext(stream.Context())
	if !ok {
		return status.Error(codes.Internal, "hostapi: the call has no connection")
	}
	by := from.Addr.(address).guest
	watcher := s.config.Directory.Watch()
	for last := uint64(0); ; {
		if _, err := watcher.Next(stream.Context()); err != nil {
			return status.FromContextError(err).Err()
		}
		message, number, err := s.directories.next(by, last)
		if err != nil {
			return err
		}
		if last = number; message == nil {
			continue
		}
		if err := stream.SendMsg(message); err != nil {
			message.Sent()
			return err
		}
	}
}

func (s *service) WatchNetwork(_ *hostv1.WatchNetworkRequest, stream grpc.ServerStreamingServer[hostv1.WatchNetworkResponse]) error {
	addresses, peers, curators := s.config.Network.Watch(), s.config.Peers.Watch(), s.config.Curators.Watch()
	// Nothing is told before the node has an address.
	if _, err := s.config.Network.Wait(stream.Context(), func([]string) bool { return true }); err != nil {
		return status.FromContextError(err).Err()
	}
	var last *hostv1.WatchNetworkResponse
	for {
		next := new(hostv1.WatchNetworkResponse)
		next.Addresses, _ = addresses.Latest()
		named, _ := peers.Latest()
		known, _ := curators.Latest()
		next.Peers = withHosts(named, known)
		if last == nil || !proto.Equal(last, next) {
			if err := stream.Send(next); err != nil {
				return err
			}
			last = next
		}
		select {
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case <-addresses.Changed():
		case <-peers.Changed():
		case <-curators.Changed():
		}
	}
}

// withHosts adds the hosts of addresses, host:port each, to machines that have not got them. A curator's machine is one that other nodes may be on: it is known over a start of the node, and is where
// the members of the store find each other if they were stopped before all of them knew new addresses.
func withHosts(machines, addresses []string) []string {
	all := slices.Clone(machines)
	for _, address := range addresses {
		if host, _, err := net.SplitHostPort(address); err == nil && !slices.Contains(all, host) {
			all = append(all, host)
		}
	}
	return all
}

// WatchOperators waits until the node knows the operators: an empty list would make roles refuse them.
func (s *service) WatchOperators(_ *hostv1.WatchOperatorsRequest, stream grpc.ServerStreamingServer[hostv1.WatchOperatorsResponse]) error {
	return follow(stream, s.config.Operators, func(now *hostv1.Operators) *hostv1.WatchOperatorsResponse {
		return &hostv1.WatchOperatorsResponse{Operators: now}
	})
}

// OpenConsensus answers at once, even for an instance that nothing is known of yet: a role should see a reason, not silence.
func (s *service) OpenConsensus(_ *hostv1.OpenConsensusRequest, stream grpc.ServerStreamingServer[hostv1.OpenConsensusResponse]) error {
	if s.remit.Manifest.GetConsensusUser() == "" {
		if err := stream.Send(unavailable(hostv1.ConsensusUnavailableReason_CONSENSUS_UNAVAILABLE_REASON_UNKNOWN_USER,
			fmt.Sprintf("role %s declares no ConsensusUser: name one in its manifest to use the consensus store", s.remit.Role))); err != nil {
			return err
		}
		// The answer is final for this instance. Ending the stream would only make the role ask again.
		<-stream.Context().Done()
		return status.FromContextError(stream.Context().Err()).Err()
	}
	answer := func(states access.States) *hostv1.OpenConsensusResponse {
		if known := states[s.remit.InstanceID]; known != nil {
			return known
		}
		return unavailable(hostv1.ConsensusUnavailableReason_CONSENSUS_UNAVAILABLE_REASON_WAITING,
			"the node prepares this instance's access to the consensus store as soon as the instance runs")
	}
	states, _ := s.config.Access.Get()
	first := answer(states)
	if err := stream.Send(first); err != nil {
		return err
	}
	return followFrom(stream, first, s.config.Access, answer)
}

func unavailable(reason hostv1.ConsensusUnavailableReason, message string) *hostv1.OpenConsensusResponse {
	return &hostv1.OpenConsensusResponse{State: &hostv1.OpenConsensusResponse_Unavailable{
		Unavailable: &hostv1.ConsensusUnavailable{Reason: reason, Message: message},
	}}
}

// response is a pointer to a message, for proto.Equal.
type response[M any] interface {
	*M
	proto.Message
}

// follow sends message(value) now and after every change that matters to the caller, until the caller or the socket ends the stream.
func follow[T, M any, P response[M]](stream grpc.ServerStreamingServer[M], value *event.Value[T], message func(T) P) error {
	return followFrom(stream, nil, value, message)
}

// followFrom is follow for a caller that already has last.
func followFrom[T, M any, P response[M]](stream grpc.ServerStreamingServer[M], last P, value *event.Value[T], message func(T) P) error {
	watcher := value.Watch()
	for {
		now, err := watcher.Next(stream.Context())
		if err != nil {
			return status.FromContextError(err).Err()
		}
		next := message(now)
		if last != nil && proto.Equal(last, next) {
			continue
		}
		if err := stream.Send(next); err != nil {
			return err
		}
		last = next
	}
}

func (s *service) ReadFile(ctx context.Context, request *hostv1.ReadFileRequest) (*hostv1.ReadFileResponse, error) {
	part, digest, size, err := s.files.read(ctx, request.GetPath(), request.GetOffset())
	if err != nil {
		return nil, s.refusal(err)
	}
	return &hostv1.ReadFileResponse{Content: part, Digest: digest, Size: uint64(size)}, nil
}

func (s *service) ReplaceFile(ctx context.Context, request *hostv1.ReplaceFileRequest) (*hostv1.ReplaceFileResponse, error) {
	made, err := s.files.replace(ctx, request.GetPath(), request.GetExpectedDigest(), request.GetPart(), request.GetContent())
	if err != nil {
		return nil, s.refusal(err)
	}
	if made.changed {
		s.log.Info("Replaced a file for a role", "path", request.GetPath(), "digest", made.digest, "bytes", len(request.GetContent()), "in_place", made.inPlace)
	}
	return &hostv1.ReplaceFileResponse{Digest: made.digest, InPlace: made.inPlace}, nil
}

// maxWaits is how many calls of an instance wait for files: a role has a few files, and other calls go on.
const maxWaits = 4

func (s *service) AwaitFile(ctx context.Context, request *hostv1.AwaitFileRequest) (*hostv1.AwaitFileResponse, error) {
	defer s.waits.Add(-1)
	if s.waits.Add(1) > maxWaits {
		return nil, status.Errorf(codes.ResourceExhausted, "%d calls of this instance wait for a file already: end one first", maxWaits)
	}
	if err := s.files.await(ctx, request.GetPath(), request.GetDigest()); err != nil {
		return nil, s.refusal(err)
	}
	return &hostv1.AwaitFileResponse{}, nil
}

// refusal turns an error of files into a gRPC status. A status stays as it is.
func (s *service) refusal(err error) error {
	var refused *hostfile.Error
	_, isStatus := status.FromError(err)
	switch {
	case isStatus:
		return err
	case errors.As(err, &refused):
		if refused.Code == codes.Internal {
			s.log.Error("Cannot handle a file for a role", "error", err)
		}
		return status.Error(refused.Code, err.Error())
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	default:
		s.log.Error("Cannot handle a file for a role", "error", err)
		return status.Error(codes.Internal, err.Error())
	}
}
