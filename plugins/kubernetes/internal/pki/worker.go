package pki

import (
	"context"
	"crypto/x509"
	"net"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/sdk/role"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	kubernetesv1 "github.com/reeveproject/reeve/proto/reeve/kubernetes/v1"
)

// The names under which Kubernetes knows a node and kube-proxy.
const (
	nodeUserPrefix = "system:node:"
	nodesGroup     = "system:nodes"
	proxyUser      = "system:kube-proxy"
)

// IssueWorker implements kubernetesv1.PKIServiceServer.
func (s *service) IssueWorker(ctx context.Context, call *kubernetesv1.IssueWorkerRequest) (*kubernetesv1.IssueWorkerResponse, error) {
	peer, ok := role.PeerFromContext(ctx)
	if !ok || peer.Role != WorkerRole {
		return nil, status.Errorf(codes.PermissionDenied, "only instances of %s are given what a worker works with", WorkerRole)
	}
	now := s.now()
	all := s.authorities()
	response := &kubernetesv1.IssueWorkerResponse{Trust: all.trust()}
	var err error
	response.Certificates, err = signAll(call.GetRequests(), func(asked *kubernetesv1.WorkerCertificateRequest, request *x509.CertificateRequest) ([]byte, error) {
		signer, says, err := s.workerLeaf(all, asked.GetPurpose(), peer.NodeID)
		if err != nil {
			return nil, err
		}
		says.ends = now.Add(workerLifetime)
		return signer.sign(request, says, now)
	})
	if err != nil {
		return nil, err
	}
	s.log.Info("signed for a worker", "node", peer.NodeID, "certificates", len(response.Certificates))
	return response, nil
}

// workerLeaf is what a certificate of a node's worker says, and who signs it.
func (s *service) workerLeaf(all *authorities, purpose kubernetesv1.WorkerPurpose, nodeID string) (*authority, leaf, error) {
	switch purpose {
	case kubernetesv1.WorkerPurpose_WORKER_PURPOSE_KUBELET_CLIENT:
		return all.clients, leaf{user: nodeUserPrefix + nodeID, groups: []string{nodesGroup}, usage: x509.ExtKeyUsageClientAuth}, nil
	case kubernetesv1.WorkerPurpose_WORKER_PURPOSE_KUBELET_SERVING:
		addresses := s.addressesOf(nodeID)
		if len(addresses) == 0 {
			return nil, leaf{}, status.Errorf(codes.Unavailable, "the cluster's directory has no address of node %s yet, or no ranges of services", nodeID)
		}
		return all.servers, leaf{
			user: nodeUserPrefix + nodeID, groups: []string{nodesGroup}, usage: x509.ExtKeyUsageServerAuth, names: []string{nodeID}, addresses: addresses,
		}, nil
	case kubernetesv1.WorkerPurpose_WORKER_PURPOSE_KUBE_PROXY:
		return all.clients, leaf{user: proxyUser, usage: x509.ExtKeyUsageClientAuth}, nil
	}
	return nil, leaf{}, unknownPurpose(purpose)
}

// addressesOf are the addresses that the directory has of a node, which the node says itself. API servers prove themselves by the same authority: no worker is given a certificate for an address at which one is
// looked for: that of another node's control plane, or of a service. There are none until a controller has published the ranges of services.
func (s *service) addressesOf(nodeID string) []net.IP {
	directory := s.directory()
	taken, services := apiServers(directory, nodeID)
	if len(services) == 0 {
		return nil
	}
	for _, node := range directory.GetNodes() {
		if node.GetNodeId() != nodeID {
			continue
		}
		var addresses []net.IP
		for _, text := range node.GetAddresses() {
			// Of a link's own address the certificate could not say of which link.
			address, err := netip.ParseAddr(text)
			if err != nil || address.Zone() != "" {
				continue
			}
			address = address.Unmap()
			if address.IsUnspecified() || taken[address] || slices.ContainsFunc(services, func(of netip.Prefix) bool { return of.Contains(address) }) {
				continue
			}
			addresses = append(addresses, address.AsSlice())
		}
		return addresses
	}
	return nil
}

// ServiceCIDRsValue is the published value by which a controller says from where services get their addresses.
const ServiceCIDRsValue = "service-cidrs"

// apiServers are where API servers are looked for that are not on a node: the addresses of the others that have a control plane, and the ranges of services.
func apiServers(directory *hostv1.Directory, nodeID string) (addresses map[netip.Addr]bool, services []netip.Prefix) {
	addresses = make(map[netip.Addr]bool)
	for _, node := range directory.GetNodes() {
		for _, instance := range node.GetRoles() {
			if instance.GetRole() != ControllerRole {
				continue
			}
			for text := range strings.SplitSeq(instance.GetValues()[ServiceCIDRsValue], ",") {
				if prefix, err := netip.ParsePrefix(text); err == nil {
					services = append(services, prefix)
				}
			}
		}
		if node.GetNodeId() == nodeID || !slices.Contains(node.GetAssigned().GetRoles(), ControllerRole) {
			continue
		}
		for _, text := range node.GetAddresses() {
			if address, err := netip.ParseAddr(text); err == nil {
				addresses[address.Unmap()] = true
			}
		}
	}
	return addresses, services
}
