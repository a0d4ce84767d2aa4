package fakecluster

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/proto/ticket"
)

// joined is what a member that has registered keeps in its system directory.
type joined struct {
	Key     []byte          `json:"key"`
	ID      string          `json:"id"`
	CA      []byte          `json:"ca"`
	Cluster string          `json:"cluster"`
	Curator string          `json:"curator"`
	Status  json.RawMessage `json:"status"`
}

// join runs a node that registers with the cluster of its ticket, over the real protocol, and then is a member of it.
func join(ctx context.Context, parameters *nodev1.Parameters, behaviour string) error {
	file := filepath.Join(parameters.GetDirectories().GetSystem(), "joined.json")
	kept := &joined{}
	if content, err := os.ReadFile(file); err == nil {
		if err := json.Unmarshal(content, kept); err != nil {
			return err
		}
	} else {
		if behaviour == "stuck" {
			<-ctx.Done()
			return nil
		}
		if kept, err = register(ctx, parameters); err != nil {
			return err
		}
		content, err := json.Marshal(kept)
		if err = errors.Join(err, os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, content, 0o600)); err != nil {
			return err
		}
	}
	certificate, err := x509.ParseCertificate(kept.CA)
	if err != nil {
		return err
	}
	reported := &clusterv1.NodeStatus{}
	if err := protojson.Unmarshal(kept.Status, reported); err != nil {
		return err
	}
	domain := identity.TrustDomain(kept.Cluster)
	cluster := &Cluster{
		id: kept.Cluster, authority: &authority{domain: domain, certificate: certificate}, curator: kept.Curator, changed: make(chan struct{}), clock: Began,
		member: &hostv1.Membership{State: hostv1.MembershipState_MEMBERSHIP_STATE_HOME, ClusterId: kept.Cluster, TrustDomain: domain, NodeId: kept.ID},
		nodes:  []*clusterv1.Node{{Record: &clusterv1.NodeRecord{Id: kept.ID}, Status: reported}},
	}
	defer cluster.Close()
	socket := filepath.Join(parameters.GetDirectories().GetRun(), "node.sock")
	_ = os.Remove(socket)
	if err := cluster.ServeLocal(socket); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// register registers and returns when the cluster has taken the node in.
func register(ctx context.Context, parameters *nodev1.Parameters) (*joined, error) {
	asks := parameters.GetRegister()
	content, err := os.ReadFile(asks.GetTicketFile())
	if err != nil {
		return nil, err
	}
	text, err := ticket.Parse(string(content))
	if err != nil {
		return nil, err
	}
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	own, err := identity.SelfSigned(key, time.Now())
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(text.GetCurators()[0], grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, Certificates: []tls.Certificate{own},
		VerifyConnection: func(state tls.ConnectionState) error { return pinned(state, text.GetCaPins()) },
	})))
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	client := clusterv1.NewEnrolmentServiceClient(conn)
	request := &clusterv1.RegisterRequest{
		TicketId: text.GetTicketId(), TicketSecret: text.GetSecret(), Labels: asks.GetLabels(), Version: "0.1.0", Addresses: parameters.GetNetwork().GetAddresses(),
		Sealer: "file", Volume: "plain",
	}
	for _, role := range asks.GetRoles() {
		request.Roles = append(request.Roles, &clusterv1.RoleAssignment{Role: role.GetRole(), Configuration: role.GetConfiguration()})
	}
	if _, err := client.Register(ctx, request); err != nil {
		return nil, err
	}
	stream, err := client.Await(ctx, &clusterv1.AwaitRequest{})
	for err == nil {
		var now *clusterv1.AwaitResponse
		if now, err = stream.Recv(); now.GetState() == clusterv1.NodeState_NODE_STATE_STANDBY {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	committed, err := client.Commit(ctx, &clusterv1.CommitRequest{})
	if err != nil {
		return nil, err
	}
	reported := &clusterv1.NodeStatus{NodeId: identity.NodeID(key.Public().(ed25519.PublicKey)), Addresses: request.Addresses, Volume: "plain", Version: "0.1.0"}
	for _, role := range committed.GetNode().GetRoles() {
		reported.Instances = append(reported.Instances, ready(reported.NodeId, role.GetRole()))
	}
	encoded, err := protojson.Marshal(reported)
	return &joined{
		Key: key.Seed(), ID: reported.NodeId, CA: committed.GetCaCertificates()[0], Cluster: text.GetClusterId(), Curator: committed.GetCurators()[0], Status: encoded,
	}, err
}

// pinned refuses a curator whose chain has no root that the ticket pins.
func pinned(state tls.ConnectionState, pins [][]byte) error {
	for _, certificate := range state.PeerCertificates {
		sum := sha256.Sum256(certificate.RawSubjectPublicKeyInfo)
		if slices.ContainsFunc(pins, func(pin []byte) bool { return string(pin) == string(sum[:]) }) {
			return state.PeerCertificates[0].CheckSignatureFrom(certificate)
		}
	}
	return fmt.Errorf("the curator's root is not the one that the ticket pins")
}
