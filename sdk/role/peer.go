package role

import (
	"context"
	"errors"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// Peer is the instance at the other end of a connection, as its SVID proved.
type Peer struct {
	NodeID string
	Role   string
}

// String is "<role> on <node ID>".
func (p Peer) String() string { return p.Role + " on " + p.NodeID }

// PeerOf returns the instance at the other end of a connection that a Listener accepted or Dial made; false for others.
func PeerOf(conn net.Conn) (Peer, bool) {
	known, ok := conn.(*peerConn)
	if !ok || known.operator != nil {
		return Peer{}, false
	}
	return known.peer, true
}

// PeerFromContext returns the instance that makes a call to a server on a Listener: a gRPC server with Credentials, or a net/http server with this
// package's ConnContext.
func PeerFromContext(ctx context.Context) (Peer, bool) {
	if known, ok := ctx.Value(peerKey{}).(Peer); ok {
		return known, true
	}
	if caller, ok := peer.FromContext(ctx); ok {
		if info, ok := caller.AuthInfo.(AuthInfo); ok && info.Operator == nil {
			return info.Peer, true
		}
	}
	return Peer{}, false
}

type peerKey struct{}

// ConnContext is for the ConnContext field of an http.Server on a Listener, so that handlers find the peer with PeerFromContext.
func ConnContext(ctx context.Context, conn net.Conn) context.Context {
	if known, ok := PeerOf(conn); ok {
		return context.WithValue(ctx, peerKey{}, known)
	}
	if known, ok := OperatorOf(conn); ok {
		return context.WithValue(ctx, operatorKey{}, known)
	}
	return ctx
}

// AuthInfo is the AuthInfo of gRPC connections with Credentials.
type AuthInfo struct {
	credentials.CommonAuthInfo
	Peer Peer
	// Operator is set if the peer is an operator instead of an instance.
	Operator *Operator
}

// AuthType implements credentials.AuthInfo.
func (AuthInfo) AuthType() string { return "reeve-role" }

// Credentials are gRPC transport credentials for a server on a Listener, and for a client whose dialer calls Dial. They only tell gRPC the peer,
// which the Listener or Dial has verified, and refuse other connections.
func Credentials() credentials.TransportCredentials { return transport{} }

type transport struct{}

func (transport) handshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	known, ok := conn.(*peerConn)
	if !ok {
		return nil, nil, errors.New("role: the connection was not made by Host.Dial, nor accepted by a Listener of Host.Listen")
	}
	info := AuthInfo{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}, Peer: known.peer}
	if operator, ok := OperatorOf(conn); ok {
		info.Operator = &operator
	}
	return conn, info, nil
}

func (t transport) ClientHandshake(_ context.Context, _ string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return t.handshake(conn)
}

func (t transport) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return t.handshake(conn)
}

func (transport) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

func (t transport) Clone() credentials.TransportCredentials { return t }

func (transport) OverrideServerName(string) error { return nil }
