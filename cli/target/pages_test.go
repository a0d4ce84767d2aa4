package target_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/reeveproject/reeve/cli/target"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// inPages is a curator with more nodes and certificates than it gives in one answer.
type inPages struct {
	clusterv1.UnimplementedManagementServiceServer
}

const (
	inAll   = 5
	perPage = 2
)

func (inPages) ListNodes(_ context.Context, request *clusterv1.ListNodesRequest) (*clusterv1.ListNodesResponse, error) {
	response := &clusterv1.ListNodesResponse{}
	for i := range inAll {
		id := fmt.Sprint("reeve-", i)
		switch {
		case id <= request.GetAfter():
		case request.GetLimit() > 0 && len(response.GetNodes()) == perPage:
			response.More = true
		default:
			response.Nodes = append(response.Nodes, &clusterv1.Node{Record: &clusterv1.NodeRecord{Id: id}})
		}
	}
	return response, nil
}

func (inPages) ListCertificates(_ context.Context, request *clusterv1.ListCertificatesRequest) (*clusterv1.ListCertificatesResponse, error) {
	at := len(request.GetAfter())
	response := &clusterv1.ListCertificatesResponse{Certificates: []*clusterv1.Certificate{{Subject: fmt.Sprint(at)}}}
	if at+1 < inAll {
		response.Next = strings.Repeat("x", at+1)
	}
	return response, nil
}

func TestPages(t *testing.T) {
	r := newRig(t)
	r.playCurator(func(server *grpc.Server) { clusterv1.RegisterManagementServiceServer(server, inPages{}) })
	options := r.options()
	options.Address, options.CAFile, options.OwnerKeyFile = r.others[0], filepath.Join(r.dir, "ca.pem"), r.ownerKey
	cluster, err := target.Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cluster.Close() }()
	if nodes, err := cluster.ListNodes(t.Context()); err != nil || len(nodes) != inAll {
		t.Errorf("%d nodes of %d, %v", len(nodes), inAll, err)
	}
	if response, err := cluster.ListCertificates(t.Context()); err != nil || len(response.GetCertificates()) != inAll {
		t.Errorf("%d certificates of %d, %v", len(response.GetCertificates()), inAll, err)
	}
}
