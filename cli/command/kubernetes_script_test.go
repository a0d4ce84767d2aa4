package command_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/cli/internal/testcluster"
	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	kubernetesv1 "github.com/reeveproject/reeve/proto/reeve/kubernetes/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// workersKey is under which a script has what its nodes serve as kubernetes-worker, by the nodes' IDs.
type workersKey struct{}

// fakeKubernetes changes what is of Kubernetes in the cluster.
func fakeKubernetes(ts *testscript.TestScript, cluster *cluster, args []string) error {
	workers := ts.Value(workersKey{}).(map[string]*worker)
	switch args[0] {
	case "kubernetes":
		return cluster.addKubernetes()
	case "stale":
		node, err := cluster.find(args[1])
		if err != nil {
			return err
		}
		return node.Silence()
	case "worker":
		if err := cluster.assign(args[1], "kubernetes-worker"); err != nil {
			return err
		}
		worker, instance, err := fakeWorker(cluster, args[1], args[2], args[3:])
		if err != nil {
			return err
		}
		workers[args[1]] = worker
		return cluster.report(args[1], "kubernetes-worker", instance)
	case "loaded":
		if worker := workers[args[1]]; worker == nil || !worker.has([]byte(ts.ReadFile(args[2]))) {
			return fmt.Errorf("node %s has not got %s", args[1], args[2])
		}
	case "controller":
		if err := cluster.assign(args[1], "kubernetes-controller"); err != nil {
			return err
		}
		return cluster.report(args[1], "kubernetes-controller", &clusterv1.InstanceStatus{
			State: instanceState(args[2]), Endpoints: []*rolev1.Endpoint{{Name: "kubernetes-api", Address: args[3]}},
		})
	case "pki":
		if err := cluster.assign(args[1], "kubernetes-pki"); err != nil {
			return err
		}
		address, err := cluster.serveRole(args[1], "kubernetes-pki", func(server *grpc.Server) {
			kubernetesv1.RegisterPKIServiceServer(server, &pki{authority: []byte("authority")})
		})
		if err != nil {
			return err
		}
		return cluster.report(args[1], "kubernetes-pki", &clusterv1.InstanceStatus{
			State: instanceState("ready"), Endpoints: []*rolev1.Endpoint{{Name: "pki", Address: address}},
		})
	}
	return nil
}

// addKubernetes adds the plugin kubernetes to the catalog, as the owner does.
func (c *cluster) addKubernetes() error {
	plugin := testcluster.Plugin("kubernetes")
	schema := `{"type": "object", "properties": {"port": {"type": "integer"}}, "additionalProperties": false}`
	plugin.Manifest.Roles = []*rolev1.RoleManifest{
		{Name: "kubernetes-pki", Summary: "signs", Requires: []string{testcluster.ConsensusCapability}},
		{Name: "kubernetes-controller", Summary: "controls", Requires: []string{testcluster.ConsensusCapability, "kubernetes-pki"}, ConfigurationSchema: schema},
		{Name: "kubernetes-worker", Summary: "runs pods"},
	}
	_, err := c.owner.AddPlugin(context.Background(), &clusterv1.AddPluginRequest{Manifest: plugin.GetManifest(), Digests: plugin.GetDigests(), Approve: true})
	return err
}

// assign writes a role into the record of a node, whatever the catalog says, and returns when the node runs it.
func (c *cluster) assign(id, role string) error {
	c.mu.Lock()
	n, err := c.find(id)
	record := proto.CloneOf(n.told.GetNode())
	c.mu.Unlock()
	if err != nil || assignment(record.GetRoles(), role) != nil {
		return err
	}
	record.Generation++
	record.Roles = append(record.Roles, &clusterv1.RoleAssignment{Role: role, Generation: record.GetGeneration()})
	slices.SortFunc(record.Roles, func(a, b *clusterv1.RoleAssignment) int { return strings.Compare(a.GetRole(), b.GetRole()) })
	if err := c.PutNode(record); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	return c.until(ctx, func() bool { return n.begun[role] != 0 })
}

// serveRole serves what an instance of a role serves to operators, with the certificate of the role on the node certified, and returns where.
func (c *cluster) serveRole(certified, role string, register func(*grpc.Server)) (string, error) {
	n, err := c.find(certified)
	if err != nil {
		return "", err
	}
	certificate, err := n.RoleCertificate(context.Background(), role)
	if err != nil {
		return "", err
	}
	return c.ServeTLS(certificate, register)
}

// fakeWorker serves what kubernetes-worker serves on a node, and returns what the node reports of it.
func fakeWorker(cluster *cluster, id, state string, options []string) (*worker, *clusterv1.InstanceStatus, error) {
	worker, certified, serves := &worker{cluster: cluster}, id, true
	for _, option := range options {
		name, value, _ := strings.Cut(option, "=")
		switch name {
		case "unserved":
			serves = false
		case "as":
			certified = value
		case "lacks":
			what, remedy, _ := strings.Cut(value, ":")
			worker.missing = append(worker.missing, &kubernetesv1.Missing{What: what, Remedy: remedy})
		case "image":
			worker.images = append(worker.images, value)
		case "refuses":
			worker.refuses = status.Error(codes.FailedPrecondition, value)
		default:
			return nil, nil, fmt.Errorf("a worker has no option %s", option)
		}
	}
	name, reason, _ := strings.Cut(state, ":")
	instance := &clusterv1.InstanceStatus{State: instanceState(name), Reason: reason, Pid: 4711}
	if !serves {
		return worker, instance, nil
	}
	address, err := cluster.serveRole(certified, "kubernetes-worker", func(server *grpc.Server) { kubernetesv1.RegisterWorkerServiceServer(server, worker) })
	instance.Endpoints = []*rolev1.Endpoint{{Name: "worker", Address: address}}
	return worker, instance, err
}

// worker is what kubernetes-worker serves on a node.
type worker struct {
	kubernetesv1.UnimplementedWorkerServiceServer
	cluster *cluster
	// missing is what its machine lacks.
	missing []*kubernetesv1.Missing
	// images are the names of the images of every archive.
	images []string
	// refuses is why it takes no archive, of which it has had some by then; nil: it takes them.
	refuses error

	mu       sync.Mutex
	archives [][]byte
}

// session says whether the caller is an operator, whose session lasts.
func (w *worker) session(ctx context.Context) error {
	from, _ := peer.FromContext(ctx)
	ca, err := x509.ParseCertificate(w.cluster.CA)
	if err == nil {
		_, err = identity.VerifySession(from.AuthInfo.(credentials.TLSInfo).State.PeerCertificates, []*x509.Certificate{ca}, w.cluster.Domain(), w.cluster.Now())
	}
	if err != nil {
		return status.Error(codes.Unauthenticated, err.Error())
	}
	return nil
}

// LoadImage implements kubernetesv1.WorkerServiceServer.
func (w *worker) LoadImage(stream grpc.ClientStreamingServer[kubernetesv1.LoadImageRequest, kubernetesv1.LoadImageResponse]) error {
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
		if w.refuses != nil {
			return w.refuses
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.archives = append(w.archives, archive.Bytes())
	return stream.SendAndClose(&kubernetesv1.LoadImageResponse{References: w.images, Bytes: uint64(archive.Len())})
}

// has says whether an archive was loaded.
func (w *worker) has(archive []byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.archives, func(one []byte) bool { return bytes.Equal(one, archive) })
}

// Check implements kubernetesv1.WorkerServiceServer.
func (w *worker) Check(ctx context.Context, _ *kubernetesv1.CheckRequest) (*kubernetesv1.CheckResponse, error) {
	if err := w.session(ctx); err != nil {
		return nil, err
	}
	return &kubernetesv1.CheckResponse{Missing: w.missing}, nil
}

// pki is what kubernetes-pki serves.
type pki struct {
	kubernetesv1.UnimplementedPKIServiceServer
	// authority is the certificate by which API servers are known.
	authority []byte
}

// GetTrust implements kubernetesv1.PKIServiceServer.
func (p *pki) GetTrust(context.Context, *kubernetesv1.GetTrustRequest) (*kubernetesv1.GetTrustResponse, error) {
	return &kubernetesv1.GetTrustResponse{Trust: &kubernetesv1.Trust{Servers: [][]byte{p.authority}}}, nil
}
