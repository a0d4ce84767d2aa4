package nodeapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	names "github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/proto/rpcoption"
	"github.com/reeveproject/reeve/sdk/peercred"
)

// checkLocal admits the core's own user and root to the local socket. The file's mode keeps the others away already; this holds if
// somebody changed it.
func checkLocal(caller peercred.Peer) error {
	if caller.UID != 0 && caller.UID != uint32(os.Geteuid()) {
		return fmt.Errorf("nodeapi: user %d may not use the node's socket", caller.UID)
	}
	return nil
}

// tlsConfig admits the owner alone, who need not be known when the server starts: everything is looked up at each handshake.
func (s *Server) tlsConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			node, _ := s.config.Identity.Get()
			if node == nil || node.SVID == nil {
				return nil, errors.New("nodeapi: the node is not a member of a cluster yet")
			}
			return node.SVID, nil
		},
		// What a certificate says is not looked at, only the key that it proves.
		ClientAuth: tls.RequireAnyClientCert,
		VerifyConnection: func(state tls.ConnectionState) error {
			if err := s.owner(state); err != nil {
				s.config.Log.Debug("a connection to the node's API was refused", "error", err)
				return err
			}
			return nil
		},
		// A resumed session would carry an owner of the past.
		SessionTicketsDisabled: true,
	}
}

// owner returns nil if the client has proved to hold the key of the cluster's owner as it is now.
func (s *Server) owner(state tls.ConnectionState) error {
	node, _ := s.config.Identity.Get()
	if node == nil || len(node.Owner) == 0 {
		return errors.New("nodeapi: the node does not know the owner of its cluster yet")
	}
	if len(state.PeerCertificates) == 0 {
		return errors.New("nodeapi: the client shows no certificate")
	}
	key, err := names.PinnedKey(state.PeerCertificates[0])
	if err != nil {
		return fmt.Errorf("nodeapi: %w", err)
	}
	if !key.Equal(node.Owner) {
		return errors.New("nodeapi: the client's key is not that of the cluster's owner")
	}
	return nil
}

// permissions returns who may call what, and fails if an RPC does not say it.
func permissions(services map[string]grpc.ServiceInfo) (map[string][]clusterv1.Caller, error) {
	declared, err := rpcoption.Declared[*clusterv1.Permission](services, clusterv1.E_Permission)
	if err != nil {
		return nil, fmt.Errorf("nodeapi: %w", err)
	}
	permitted := make(map[string][]clusterv1.Caller, len(declared))
	for method, permission := range declared {
		if len(permission.GetCallers()) == 0 || slices.Contains(permission.GetCallers(), clusterv1.Caller_CALLER_UNSPECIFIED) {
			return nil, fmt.Errorf("nodeapi: RPC %s does not say who may call it", method)
		}
		permitted[method] = permission.GetCallers()
	}
	return permitted, nil
}

// gate refuses calls to those who may not make them.
type gate struct {
	permitted map[string][]clusterv1.Caller
	// owner checks that a connection is the owner's: also of one that was admitted before the owner changed.
	owner func(tls.ConnectionState) error
}

func (g *gate) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := g.check(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	return handler(ctx, request)
}

func (g *gate) stream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if err := g.check(stream.Context(), info.FullMethod); err != nil {
		return err
	}
	return handler(server, stream)
}

func (g *gate) check(ctx context.Context, method string) error {
	caller, err := g.caller(ctx)
	if err != nil {
		return status.Error(codes.Unauthenticated, err.Error())
	}
	if !slices.Contains(g.permitted[method], caller) {
		return status.Errorf(codes.PermissionDenied, "nodeapi: %s may be called by %v, not by %v", method, g.permitted[method], caller)
	}
	return nil
}

// caller says what the caller has proved to be.
func (g *gate) caller(ctx context.Context) (clusterv1.Caller, error) {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return 0, errors.New("nodeapi: the caller is not known")
	}
	switch proof := from.AuthInfo.(type) {
	case peercred.Info:
		return clusterv1.Caller_CALLER_LOCAL, checkLocal(proof.Peer)
	case credentials.TLSInfo:
		return clusterv1.Caller_CALLER_OWNER, g.owner(proof.State)
	default:
		return 0, errors.New("nodeapi: the caller proved nothing")
	}
}

// recovered answers a call whose handler panicked, so that a mistake in one answer does not stop the node.
func (s *Server) recovered(ctx context.Context, cause any) error {
	method, _ := grpc.Method(ctx)
	s.config.Log.Error("a call of the node's API panicked", "method", method, "panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
	return status.Errorf(codes.Internal, "nodeapi: %s failed by a mistake in the core; its log says where", method)
}
