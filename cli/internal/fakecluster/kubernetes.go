package fakecluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	kubernetesv1 "github.com/reeveproject/reeve/proto/reeve/kubernetes/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// RunRole has a node run a role as it is reported, and returns when the node says so.
func (c *Cluster) RunRole(id, role string, instance *clusterv1.InstanceStatus) error {
	c.Outcome(role, instance)
	_, err := c.Assign(id, role, "")
	return err
}

// ServeRole serves what an instance of a role serves to operators, with the certificate of the role on the node certified, and returns where.
func (c *Cluster) ServeRole(certified, role string, register func(*grpc.Server)) (string, error) {
	certificate, err := c.authority.server(identity.RoleURI(c.authority.domain, certified, role), "")
	if err != nil {
		return "", err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	c.serveBy(listener, register, grpc.Creds(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequireAnyClientCert,
	})))
	return listener.Addr().String(), nil
}

// SetHealthy says whether the heartbeat of a node is fresh.
func (c *Cluster) SetHealthy(id string, healthy bool) error {
	var err error
	c.Update(func() {
		var node *clusterv1.Node
		if node, err = c.find(id); err == nil {
			node.Healthy = healthy
		}
	})
	return err
}

// Worker is what kubernetes-worker serves on a node.
type Worker struct {
	kubernetesv1.UnimplementedWorkerServiceServer
	Cluster *Cluster
	// Missing is what its machine lacks.
	Missing []*kubernetesv1.Missing
	// Images are the names of the images of every archive.
	Images []string
	// Refuses is why it takes no archive, of which it has had some by then; nil: it takes them.
	Refuses error

	mu       sync.Mutex
	archives [][]byte
}

// session says whether the caller is an operator, whose session lasts.
func (w *Worker) session(ctx context.Context) error {
	who, err := w.Cluster.identify(ctx)
	if err != nil {
		return err
	}
	if who.session == (identity.Session{}) {
		return status.Error(codes.Unauthenticated, "the caller shows no session")
	}
	return nil
}

// LoadImage implements kubernetesv1.WorkerServiceServer.
func (w *Worker) LoadImage(stream grpc.ClientStreamingServer[kubernetesv1.LoadImageRequest, kubernetesv1.LoadImageResponse]) error {
	if err := w.session(stream.Context()); err != nil {
		return err
	}
	var archive bytes.Buffer
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		archive.Write(request.GetChunk())
		if w.Refuses != nil {
			return w.Refuses
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.archives = append(w.archives, archive.Bytes())
	return stream.SendAndClose(&kubernetesv1.LoadImageResponse{References: w.Images, Bytes: uint64(archive.Len())})
}

// Has says whether an archive was loaded.
func (w *Worker) Has(archive []byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.archives, func(one []byte) bool { return bytes.Equal(one, archive) })
}

// Check implements kubernetesv1.WorkerServiceServer.
func (w *Worker) Check(ctx context.Context, _ *kubernetesv1.CheckRequest) (*kubernetesv1.CheckResponse, error) {
	if err := w.session(ctx); err != nil {
		return nil, err
	}
	return &kubernetesv1.CheckResponse{Missing: w.Missing}, nil
}

// PKI is what kubernetes-pki serves.
type PKI struct {
	kubernetesv1.UnimplementedPKIServiceServer
	// Authority is the certificate by which API servers are known.
	Authority []byte
}

// GetTrust implements kubernetesv1.PKIServiceServer.
func (p *PKI) GetTrust(context.Context, *kubernetesv1.GetTrustRequest) (*kubernetesv1.GetTrustResponse, error) {
	return &kubernetesv1.GetTrustResponse{Trust: &kubernetesv1.Trust{Servers: [][]byte{p.Authority}}}, nil
}

// required says whether a node has what a role requires, apart from what is given to it in the same step.
func (c *Cluster) required(id, role string, with ...string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	node, err := c.find(id)
	if err != nil {
		return err
	}
	has := slices.Clone(with)
	for _, assignment := range node.GetRecord().GetRoles() {
		has = append(has, assignment.GetRole())
	}
	offered := make(map[string]*rolev1.RoleManifest)
	for _, plugin := range c.plugins {
		for _, one := range plugin.GetManifest().GetRoles() {
			offered[one.GetName()] = one
		}
	}
	for _, requirement := range offered[role].GetRequires() {
		if !slices.ContainsFunc(has, func(other string) bool {
			return other == requirement || slices.Contains(offered[other].GetProvides(), requirement)
		}) {
			return status.Errorf(codes.FailedPrecondition, "role %q of node %s requires %q, which no other role of the node is or provides", role, id, requirement)
		}
	}
	return nil
}

// SetRoles gives a node all roles that it does not have, one after another, and takes none from it.
func (m *management) SetRoles(_ context.Context, request *clusterv1.SetRolesRequest) (*clusterv1.SetRolesResponse, error) {
	m.cluster.mu.Lock()
	node, err := m.cluster.find(request.GetNodeId())
	record := proto.CloneOf(node.GetRecord())
	m.cluster.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if expected := request.GetExpectedGeneration(); expected != 0 && expected != record.GetGeneration() {
		return nil, status.Errorf(codes.Aborted, "the record of node %s has generation %d, not %d", request.GetNodeId(), record.GetGeneration(), expected)
	}
	var names []string
	for _, role := range request.GetRoles() {
		names = append(names, role.GetRole())
	}
	for _, has := range record.GetRoles() {
		if !slices.Contains(names, has.GetRole()) {
			return nil, status.Errorf(codes.FailedPrecondition, "role %s would be taken from the node", has.GetRole())
		}
	}
	for _, role := range request.GetRoles() {
		if strings.Contains(role.GetConfiguration(), "wrong") {
			return nil, status.Error(codes.InvalidArgument, "/wrong: is not allowed")
		}
		if err := m.cluster.required(request.GetNodeId(), role.GetRole(), names...); err != nil {
			return nil, err
		}
	}
	for _, role := range request.GetRoles() {
		if slices.ContainsFunc(record.GetRoles(), func(has *clusterv1.RoleAssignment) bool {
			return has.GetRole() == role.GetRole() && has.GetConfiguration() == role.GetConfiguration()
		}) {
			continue
		}
		if request.GetDryRun() {
			record.Generation++
			record.Roles = append(record.Roles, &clusterv1.RoleAssignment{Role: role.GetRole(), Configuration: role.GetConfiguration(), Generation: record.GetGeneration()})
			continue
		}
		if record, err = m.cluster.Assign(request.GetNodeId(), role.GetRole(), role.GetConfiguration()); err != nil {
			return nil, err
		}
	}
	return &clusterv1.SetRolesResponse{Node: record}, nil
}
