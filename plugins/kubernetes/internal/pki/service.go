package pki

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/sdk/event"
	"github.com/reeveproject/reeve/sdk/role"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	kubernetesv1 "github.com/reeveproject/reeve/proto/reeve/kubernetes/v1"
)

// ControllerRole is the role whose instances are given what a control plane works with.
const ControllerRole = "kubernetes-controller"

// WorkerRole is the role whose instances are given what a worker works with.
const WorkerRole = "kubernetes-worker"

// How long certificates are good. Kubernetes asks nobody whether one was withdrawn: that of an operator who is one no more ends soon.
const (
	controllerLifetime = 24 * time.Hour
	workerLifetime     = 24 * time.Hour
	operatorLifetime   = 15 * time.Minute
)

// maxRequests is the largest number of certificates in one call.
const maxRequests = 16

// service answers. Who calls, the connection has proved.
type service struct {
	kubernetesv1.UnimplementedPKIServiceServer
	// current are the authorities as the store had them last, and kv is the store.
	current *event.Value[*authorities]
	kv      store
	// stopping is done when streams are to end.
	stopping context.Context
	// directory is what the cluster last said of its nodes; nil: nothing yet. awaitDirectory waits for one that is not out of date.
	directory      func() *hostv1.Directory
	awaitDirectory func(context.Context) (*hostv1.Directory, error)
	log            hclog.Logger
	now            func() time.Time
}

// authorities are those that sign now. A call works with what they were when it began.
func (s *service) authorities() *authorities {
	all, _ := s.current.Get()
	return all
}

// GetTrust implements kubernetesv1.PKIServiceServer.
func (s *service) GetTrust(context.Context, *kubernetesv1.GetTrustRequest) (*kubernetesv1.GetTrustResponse, error) {
	return &kubernetesv1.GetTrustResponse{Trust: s.authorities().trust()}, nil
}

// IssueController implements kubernetesv1.PKIServiceServer.
func (s *service) IssueController(ctx context.Context, call *kubernetesv1.IssueControllerRequest) (*kubernetesv1.IssueControllerResponse, error) {
	peer, ok := role.PeerFromContext(ctx)
	if !ok || peer.Role != ControllerRole {
		return nil, status.Errorf(codes.PermissionDenied, "only instances of %s are given what a control plane works with", ControllerRole)
	}
	now := s.now()
	all := s.authorities()
	response := &kubernetesv1.IssueControllerResponse{Trust: all.trust(), ServiceAccountKeys: all.serviceAccounts}
	var err error
	response.Certificates, err = signAll(call.GetRequests(), func(asked *kubernetesv1.ControllerCertificateRequest, request *x509.CertificateRequest) ([]byte, error) {
		signer, says, ok := all.controllerLeaf(asked.GetPurpose(), request)
		if !ok {
			return nil, unknownPurpose(asked.GetPurpose())
		}
		says.ends = now.Add(controllerLifetime)
		return signer.sign(request, says, now)
	})
	if err != nil {
		return nil, err
	}
	s.log.Info("signed for a control plane", "node", peer.NodeID, "certificates", len(response.Certificates))
	return response, nil
}

// signAll makes the certificates that a call asks for, one after another: all or none.
func signAll[A interface{ GetCertificateRequest() []byte }](all []A, sign func(A, *x509.CertificateRequest) ([]byte, error)) ([][]byte, error) {
	if n := len(all); n == 0 || n > maxRequests {
		return nil, status.Errorf(codes.InvalidArgument, "%d certificates are asked for: want 1 to %d", n, maxRequests)
	}
	var certificates [][]byte
	for n, asked := range all {
		request, err := requestOf(asked.GetCertificateRequest())
		if err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "requests[%d]: the certificate request cannot be used: %s", n, err)
		}
		certificate, err := sign(asked, request)
		if err != nil {
			code := codes.Internal
			if said, ok := status.FromError(err); ok {
				code = said.Code()
			}
			return nil, status.Errorf(code, "requests[%d]: %s", n, status.Convert(err).Message())
		}
		certificates = append(certificates, certificate)
	}
	return certificates, nil
}

func unknownPurpose(purpose fmt.Stringer) error {
	return status.Errorf(codes.InvalidArgument, "the purpose %s is not known: upgrade the plugin on the node of %s", purpose, RoleName)
}

// SupervisorGroup is the group of the role kubernetes-controller itself, to which Kubernetes allows everything before it has any rule.
const SupervisorGroup = "system:masters"

// controllerLeaf is what a certificate of a control plane says, and who signs it.
func (a *authorities) controllerLeaf(purpose kubernetesv1.ControllerPurpose, request *x509.CertificateRequest) (*authority, leaf, bool) {
	client := func(user string, groups ...string) (*authority, leaf, bool) {
		return a.clients, leaf{user: user, groups: groups, usage: x509.ExtKeyUsageClientAuth}, true
	}
	switch purpose {
	case kubernetesv1.ControllerPurpose_CONTROLLER_PURPOSE_API_SERVER:
		return a.servers, leaf{
			user: "kube-apiserver", usage: x509.ExtKeyUsageServerAuth, names: slices.Clone(request.DNSNames), addresses: slices.Clone(request.IPAddresses),
		}, true
	case kubernetesv1.ControllerPurpose_CONTROLLER_PURPOSE_API_SERVER_TO_KUBELETS:
		return client("reeve:kube-apiserver")
	case kubernetesv1.ControllerPurpose_CONTROLLER_PURPOSE_API_SERVER_TO_AGGREGATED:
		return a.aggregators, leaf{user: "front-proxy-client", usage: x509.ExtKeyUsageClientAuth}, true
	case kubernetesv1.ControllerPurpose_CONTROLLER_PURPOSE_CONTROLLER_MANAGER:
		return client("system:kube-controller-manager")
	case kubernetesv1.ControllerPurpose_CONTROLLER_PURPOSE_SCHEDULER:
		return client("system:kube-scheduler")
	case kubernetesv1.ControllerPurpose_CONTROLLER_PURPOSE_SUPERVISOR:
		return client("reeve:kubernetes-controller", SupervisorGroup)
	}
	return nil, leaf{}, false
}

// IssueOperator implements kubernetesv1.PKIServiceServer.
func (s *service) IssueOperator(ctx context.Context, call *kubernetesv1.IssueOperatorRequest) (*kubernetesv1.IssueOperatorResponse, error) {
	who, ok := role.OperatorFromContext(ctx)
	if !ok {
		return nil, status.Error(codes.PermissionDenied, "only operators of the cluster are given their certificate for Kubernetes: `reeve login` begins a session")
	}
	user, group, ok := identityOf(who)
	if !ok {
		return nil, status.Errorf(codes.PermissionDenied, "%s has a role (%s) that Kubernetes has no group for", who, who.Role)
	}
	request, err := requestOf(call.GetCertificateRequest())
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "the certificate request cannot be used: %s", err)
	}
	now := s.now()
	says := leaf{user: user, groups: []string{group}, usage: x509.ExtKeyUsageClientAuth, ends: now.Add(operatorLifetime).Truncate(time.Second)}
	if who.Expires.Before(says.ends) {
		says.ends = who.Expires
	}
	all := s.authorities()
	certificate, err := all.clients.sign(request, says, now)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "sign: %s", err)
	}
	s.log.Info("signed for an operator", "operator", who.String(), "user", user, "group", group, "expires", says.ends)
	return &kubernetesv1.IssueOperatorResponse{
		Certificate: certificate, Trust: all.trust(), User: user, Groups: says.groups, Expires: timestamppb.New(says.ends),
	}, nil
}

// The groups of operators in Kubernetes.
const (
	OwnerGroup    = "reeve:owner"
	OperatorGroup = "reeve:operator"
	ViewerGroup   = "reeve:viewer"
)

// identityOf is as whom Kubernetes knows an operator.
func identityOf(who role.Operator) (user, group string, ok bool) {
	user = "reeve:owner"
	if who.Name != "" {
		user = "reeve:operator:" + who.Name
	}
	switch who.Role {
	case hostv1.OperatorRole_OPERATOR_ROLE_OWNER:
		return user, OwnerGroup, true
	case hostv1.OperatorRole_OPERATOR_ROLE_OPERATOR:
		return user, OperatorGroup, true
	case hostv1.OperatorRole_OPERATOR_ROLE_VIEWER:
		return user, ViewerGroup, true
	}
	return "", "", false
}
