package fakecluster

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	kubernetesv1 "github.com/reeveproject/reeve/proto/reeve/kubernetes/v1"
)

// RunRole has a node run a role as it is reported, and returns when the node says so.
func (c *Cluster) RunRole(id, role string, instance *clusterv1.InstanceStatus) error {
	c.Outcome(role, instance)
	return c.Assign(id, role, "")
}

// ServeRole serves what an instance of a role serves to operators, with the certificate of the role on the node certified, and returns where.
func (c *Cluster) ServeRole(certified, role string, register func(*grpc.Server)) (string, error) {
	certificate, err := c.authority.server(identity.RoleURI(c.authority.domain, certified, role), "")
	if err != nil {
		return "", err
	}
	address, _, err := c.serveTLS(certificate, register)
	return address, err
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
	w.Cluster.mu.Lock()
	defer w.Cluster.mu.Unlock()
	who, err := w.Cluster.identify(ctx)
	if err == nil && who.session == (identity.Session{}) {
		err = status.Error(codes.Unauthenticated, "the caller shows no session")
	}
	return err
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
func (c *Cluster) required(node *clusterv1.Node, role string, with ...string) error {
	has := slices.Clone(with)
	for _, assignment := range node.GetRecord().GetRoles() {
		has = append(has, assignment.GetRole())
	}
	for _, requirement := range c.offered(role).GetRequires() {
		if !slices.ContainsFunc(has, func(other string) bool {
			return other == requirement || slices.Contains(c.offered(other).GetProvides(), requirement)
		}) {
			return status.Errorf(codes.FailedPrecondition, "role %q of node %s requires %q, which no other role of the node is or provides", role, node.GetRecord().GetId(), requirement)
		}
	}
	return nil
}

// SetRoles gives a node the roles that it does not have, and takes none from it.
func (m *management) SetRoles(_ context.Context, request *clusterv1.SetRolesRequest) (*clusterv1.SetRolesResponse, error) {
	c := m.cluster
	node, err := c.find(request.GetNodeId())
	if err != nil {
		return nil, err
	}
	var names []string
	for _, role := range request.GetRoles() {
		names = append(names, role.GetRole())
	}
	for _, role := range request.GetRoles() {
		if strings.Contains(role.GetConfiguration(), "wrong") {
			return nil, status.Error(codes.InvalidArgument, "/wrong: is not allowed")
		}
		if err := c.required(node, role.GetRole(), names...); err != nil {
			return nil, err
		}
	}
	if request.GetDryRun() {
		node = proto.CloneOf(node)
	}
	for _, role := range request.GetRoles() {
		switch {
		case slices.ContainsFunc(node.GetRecord().GetRoles(), func(has *clusterv1.RoleAssignment) bool {
			return has.GetRole() == role.GetRole() && has.GetConfiguration() == role.GetConfiguration()
		}):
		case request.GetDryRun():
			give(node.GetRecord(), role.GetRole(), role.GetConfiguration())
		default:
			c.assign(node, role.GetRole(), role.GetConfiguration())
		}
	}
	return &clusterv1.SetRolesResponse{Node: node.GetRecord()}, nil
}
