package audit

import (
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// Unary is the interceptor of unary RPCs that audits those for which audited returns true. It is to be outside of whatever decides how a call ends.
func (l *Log) Unary(audited func(rpc string) bool) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if !audited(info.FullMethod) {
			return handler(ctx, request)
		}
		call := l.begin(info.FullMethod, address(ctx))
		if message, ok := request.(proto.Message); ok {
			call.Asked(message)
		}
		response, err := handler(with(ctx, call), request)
		if err := l.end(call, err); err != nil {
			return nil, err
		}
		return response, nil
	}
}

// Stream is the interceptor of streams. Their entry is written before their first message is sent, or when they end without one.
func (l *Log) Stream(audited func(rpc string) bool) grpc.StreamServerInterceptor {
	return func(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if !audited(info.FullMethod) {
			return handler(service, stream)
		}
		call := l.begin(info.FullMethod, address(stream.Context()))
		watched := &watchedStream{ServerStream: stream, ctx: with(stream.Context(), call), log: l, call: call}
		err := handler(service, watched)
		if watched.begun {
			return err
		}
		return l.end(call, err)
	}
}

// watchedStream is a stream that is audited. As every stream, it is read by one goroutine and written by one.
type watchedStream struct {
	grpc.ServerStream
	ctx   context.Context
	log   *Log
	call  *Call
	begun bool // the entry was written
}

// Context implements grpc.ServerStream.
func (s *watchedStream) Context() context.Context { return s.ctx }

// RecvMsg implements grpc.ServerStream.
func (s *watchedStream) RecvMsg(into any) error {
	err := s.ServerStream.RecvMsg(into)
	if message, ok := into.(proto.Message); ok && err == nil {
		s.call.Asked(message)
	}
	return err
}

// SendMsg implements grpc.ServerStream.
func (s *watchedStream) SendMsg(message any) error {
	if !s.begun {
		if err := s.log.end(s.call, nil); err != nil {
			return err
		}
		s.begun = true
	}
	return s.ServerStream.SendMsg(message)
}

// Do audits a call that comes another way than by the cluster API: from the core of this node, who is on the plugin connection.
func (l *Log) Do(ctx context.Context, rpc string, request proto.Message, handle func(context.Context) error) error {
	call := l.begin(rpc, "local")
	call.By("core of node "+l.config.NodeID, clusterv1.Caller_CALLER_CORE)
	call.Asked(request)
	return l.end(call, handle(with(ctx, call)))
}

// Own returns the call of a change that a curator makes by itself, with nobody calling: doing stands in the place of an RPC, and about in that of its request.
func (l *Log) Own(doing string, about map[string]string) *Call {
	call := l.begin(doing, "local")
	call.By("curator", clusterv1.Caller_CALLER_UNSPECIFIED)
	call.entry.Parameters = about
	return call
}

func (l *Log) begin(rpc, address string) *Call {
	call := newCall(rpc, address, l.config.NodeID, l.config.Now())
	call.onKept = l.noteChange
	return call
}

// end keeps a call that ended with err, and returns what the caller is told.
func (l *Log) end(call *Call, err error) error {
	if err == nil && call.written() {
		return nil
	}
	entry := call.ended(err)
	if !l.admit(entry) {
		l.config.Counts.AuditSuppressed()
		return err
	}
	if shelf(entry) == store.AuditIssued {
		// A store that is full is no reason to leave a node without identities: what it has would end within the hour.
		l.drop(entry)
		return err
	}
	if code(err) == codes.Unavailable {
		// The store is away, most likely. Whoever was told so has waited for it already.
		l.drop(entry)
		return err
	}
	problem := l.put(entry)
	if problem == nil || entry.GetKind() == clusterv1.Caller_CALLER_UNSPECIFIED {
		return err
	}
	return answer.Errorf(codes.Unavailable, "%s is not answered, since the call cannot be kept in the audit log: %v", entry.GetRpc(), problem)
}

// code is the code of the status that an error becomes.
func code(err error) codes.Code { return status.Code(answer.Error(err)) }

func address(ctx context.Context) string {
	from, ok := peer.FromContext(ctx)
	if !ok || from.Addr == nil {
		return ""
	}
	if host, port, err := net.SplitHostPort(from.Addr.String()); err == nil {
		return net.JoinHostPort(host, port)
	}
	return from.Addr.String()
}

// Network is where an address is: its host, or the network of an IPv6 one, of which a machine has all addresses.
func Network(address string) string {
	name, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	if ip := net.ParseIP(name); ip != nil && ip.To4() == nil {
		return ip.Mask(net.CIDRMask(64, 128)).String()
	}
	return name
}
