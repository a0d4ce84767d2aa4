package store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// door accepts the connections of one user.
type door struct {
	net.Listener
	user *user
}

// Accept implements net.Listener.
func (d *door) Accept() (net.Conn, error) {
	conn, err := d.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &connection{conn, d.user}, nil
}

// connection is a connection of a user.
type connection struct {
	net.Conn
	user *user
}

// identityOf returns credentials by which etcd recognizes a user: the common name of a verified certificate.
func identityOf(name string) credentials.TLSInfo {
	return credentials.TLSInfo{
		State:          tls.ConnectionState{HandshakeComplete: true, VerifiedChains: [][]*x509.Certificate{{{Subject: pkix.Name{CommonName: name}}}}},
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
	}
}

// as returns a context for calls in this process as a user.
func as(ctx context.Context, name string) context.Context {
	return peer.NewContext(metadata.NewIncomingContext(ctx, metadata.MD{}), &peer.Peer{AuthInfo: identityOf(name)})
}

// userOf returns the user whose connection a call came on.
func (s *Store) userOf(ctx context.Context) *user {
	caller, _ := peer.FromContext(ctx)
	info := caller.AuthInfo.(credentials.TLSInfo)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.users[info.State.VerifiedChains[0][0].Subject.CommonName]
}

// transport is the server's transport credentials. It exchanges nothing: the socket identifies the peer.
type transport struct{}

// ServerHandshake implements credentials.TransportCredentials.
func (transport) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, ok := raw.(*connection)
	if !ok {
		return nil, nil, fmt.Errorf("a connection that was not accepted here: %T", raw)
	}
	return conn, identityOf(conn.user.name), nil
}

// ClientHandshake implements credentials.TransportCredentials.
func (transport) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("only for servers")
}

// Info implements credentials.TransportCredentials.
func (transport) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "socket"}
}

// Clone implements credentials.TransportCredentials.
func (t transport) Clone() credentials.TransportCredentials { return t }

// OverrideServerName implements credentials.TransportCredentials.
func (transport) OverrideServerName(string) error { return nil }
