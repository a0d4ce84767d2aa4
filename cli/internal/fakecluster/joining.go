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
	reported := &clusterv1.NodeStatus{}
	if err := protojson.Unmarshal(kept.Status, reported); err != nil {
		return err
	}
	cluster, err := kept.serve(parameters, hostv1.MembershipState_MEMBERSHIP_STATE_HOME, reported)
	if err != nil {
		return err
	}
	defer cluster.Close()
	<-ctx.Done()
	return nil
}

// serve serves the node's own API in a state of its membership.
func (j *joined) serve(parameters *nodev1.Parameters, state hostv1.MembershipState, reported *clusterv1.NodeStatus) (*Cluster, error) {
	certificate, err := x509.ParseCertificate(j.CA)
	if err != nil {
		return nil, err
	}
	domain := identity.TrustDomain(j.Cluster)
	key := ed25519.NewKeyFromSeed(j.Key).Public().(ed25519.PublicKey)
	cluster := &Cluster{
		id: j.Cluster, authority: &authority{domain: domain, certificate: certificate}, curator: j.Curator, changed: make(chan struct{}), clock: Began,
		member: &hostv1.Membership{State: state, ClusterId: j.Cluster, TrustDomain: domain, NodeId: j.ID},
		nodes:  []*clusterv1.Node{{Record: &clusterv1.NodeRecord{Id: j.ID, PublicKey: key}, Status: reported}},
	}
	socket := filepath.Join(parameters.GetDirectories().GetRun(), "node.sock")
	_ = os.Remove(socket)
	if err := cluster.ServeLocal(socket); err != nil {
		cluster.Close()
		return nil, err
	}
	return cluster, nil
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
	registered, err := client.Register(ctx, request)
	if err != nil {
		return nil, err
	}
	kept := &joined{
		Key: key.Seed(), ID: registered.GetNode().GetId(), CA: registered.GetCaCertificates()[0], Cluster: text.GetClusterId(), Curator: text.GetCurators()[0],
	}
	waits, err := kept.serve(parameters, hostv1.MembershipState_MEMBERSHIP_STATE_FOREIGN, &clusterv1.NodeStatus{NodeId: kept.ID})
	if err != nil {
		return nil, err
	}
	defer waits.Close()
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
	reported := &clusterv1.NodeStatus{NodeId: kept.ID, Addresses: request.Addresses, Volume: "plain", Version: "0.1.0"}
	for _, role := range committed.GetNode().GetRoles() {
		reported.Instances = append(reported.Instances, ready(reported.NodeId, role.GetRole()))
	}
	kept.Status, err = protojson.Marshal(reported)
	return kept, err
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
