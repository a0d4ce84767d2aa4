package store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/reeveproject/reeve/proto/identity"
)

// RootUser is etcd's all-powerful user. It has no password, and no connection is ever taken for it: it acts in process only.
const RootUser = identity.StoreRoot

// Identity is what a connection's transport credentials say for etcd to take it for a user: the form of a verified client certificate, whose
// common name is the user. Here the kernel's word about the peer stands in the place of the certificate.
func Identity(user string) credentials.TLSInfo {
	return credentials.TLSInfo{
		State: tls.ConnectionState{
			HandshakeComplete: true,
			VerifiedChains:    [][]*x509.Certificate{{{Subject: pkix.Name{CommonName: user}}}},
		},
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
	}
}

// UserOf returns the user whose connection a call came on, as Identity said it; "" if it said none.
func UserOf(ctx context.Context) string {
	caller, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	info, ok := caller.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 || len(info.State.VerifiedChains[0]) == 0 {
		return ""
	}
	return info.State.VerifiedChains[0][0].Subject.CommonName
}

// Root returns a context whose calls on Client are root's, or those of the fence that it is in.
func Root(ctx context.Context) context.Context {
	if fence, ok := ctx.Value(fenceKey{}).(string); ok {
		return As(ctx, fence)
	}
	return As(ctx, RootUser)
}

// As returns a context whose calls on Client and Server are a user's.
func As(ctx context.Context, user string) context.Context {
	ctx = metadata.NewIncomingContext(ctx, metadata.MD{})
	return peer.NewContext(ctx, &peer.Peer{AuthInfo: Identity(user)})
}
