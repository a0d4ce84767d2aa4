package testcluster

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// Node is a node that the test plays.
type Node struct {
	ID  string
	Key ed25519.PrivateKey

	cluster *Cluster
	conn    *grpc.ClientConn
	chain   [][]byte
}

// NewNode makes the node whose key comes of a number.
func NewNode(number uint32) *Node {
	seed := make([]byte, ed25519.SeedSize)
	binary.BigEndian.PutUint32(seed, number)
	key := ed25519.NewKeyFromSeed(seed)
	return &Node{ID: identity.NodeID(key.Public().(ed25519.PublicKey)), Key: key}
}

func (n *Node) public() ed25519.PublicKey { return n.Key.Public().(ed25519.PublicKey) }

// FirstStart is the start of every node's core.
var FirstStart = &clusterv1.Incarnation{Number: 1, Nonce: []byte("0123456789abcdef")}

// Dial connects the node to its curator, until Close.
func (n *Node) Dial() (err error) {
	n.conn, err = n.dialAs(FirstStart)
	return err
}

// Close ends the connection.
func (n *Node) Close() error { return n.conn.Close() }

// API is the node service as the node calls it.
func (n *Node) API() clusterv1.NodeServiceClient { return clusterv1.NewNodeServiceClient(n.conn) }

func (n *Node) dialAs(start *clusterv1.Incarnation) (*grpc.ClientConn, error) {
	said := func(ctx context.Context) context.Context {
		return metadata.AppendToOutgoingContext(ctx, clusterv1.IncarnationHeader, start.Header())
	}
	return n.cluster.Dial(n.Key,
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
			return invoke(said(ctx), method, request, reply, conn, options...)
		}),
		grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, stream grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
			return stream(said(ctx), desc, conn, method, options...)
		}))
}

// CallAsTwin has another machine with the node's key call the curator, which refuses it.
func (n *Node) CallAsTwin(ctx context.Context) error {
	conn, err := n.dialAs(&clusterv1.Incarnation{Number: FirstStart.GetNumber(), Nonce: []byte("fedcba9876543210")})
	if err != nil {
		return err
	}
	_, err = clusterv1.NewNodeServiceClient(conn).Heartbeat(ctx, &clusterv1.HeartbeatRequest{})
	_ = conn.Close()
	return err
}

// Certificate is the certificate with which the node serves.
func (n *Node) Certificate(ctx context.Context) (*tls.Certificate, error) {
	if n.chain == nil {
		issued, err := n.API().IssueSVID(ctx, &clusterv1.IssueSVIDRequest{})
		if err != nil {
			return nil, err
		}
		n.chain = issued.GetSvid()
	}
	return &tls.Certificate{Certificate: n.chain, PrivateKey: n.Key}, nil
}

// RoleCertificate is the certificate of an instance of a role that the node has.
func (n *Node) RoleCertificate(ctx context.Context, role string) (*tls.Certificate, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, new(x509.CertificateRequest), key)
	if err != nil {
		return nil, err
	}
	issued, err := n.API().IssueRoleSVID(ctx, &clusterv1.IssueRoleSVIDRequest{Role: role, CertificateRequest: request})
	return &tls.Certificate{Certificate: issued.GetSvid(), PrivateKey: key}, err
}

// Silence ends the heartbeat of the node.
func (n *Node) Silence() error { return n.cluster.program.Call("Cluster.Silence", n.ID, new(none)) }
