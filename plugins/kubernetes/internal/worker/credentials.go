package worker

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"

	"github.com/google/renameio/v2"
	"google.golang.org/grpc"

	"github.com/reeveproject/reeve/plugins/kubernetes/internal/credential"
	"github.com/reeveproject/reeve/plugins/kubernetes/internal/pki"

	kubernetesv1 "github.com/reeveproject/reeve/proto/reeve/kubernetes/v1"
)

// The names of the credentials, and of the files of those who sign.
const (
	nameKubelet = "kubelet"
	nameServing = "kubelet-serving"
	nameProxy   = "kube-proxy"

	fileServersCA = "servers-ca.crt"
	fileClientsCA = "clients-ca.crt"
)

// issued are the certificates that a worker works with, by the names of their files.
func issued() map[string]kubernetesv1.WorkerPurpose {
	return map[string]kubernetesv1.WorkerPurpose{
		nameKubelet: kubernetesv1.WorkerPurpose_WORKER_PURPOSE_KUBELET_CLIENT,
		nameServing: kubernetesv1.WorkerPurpose_WORKER_PURPOSE_KUBELET_SERVING,
		nameProxy:   kubernetesv1.WorkerPurpose_WORKER_PURPOSE_KUBE_PROXY,
	}
}

// fetch makes keys, has them certified, and writes the files that the programs work with, which read them again by themselves but for who signs for API servers.
func (w *work) fetch(ctx context.Context) (got credential.Granted, err error) {
	ctx, cancel := context.WithTimeout(ctx, credential.IssueTime)
	defer cancel()
	request := &kubernetesv1.IssueWorkerRequest{}
	files := make(map[string][]byte)
	var names []string
	for name, purpose := range issued() {
		private, asked, err := credential.NewKey(&x509.CertificateRequest{})
		if err != nil {
			return got, err
		}
		files[w.at.key(name)] = private
		names = append(names, name)
		request.Requests = append(request.Requests, &kubernetesv1.WorkerCertificateRequest{Purpose: purpose, CertificateRequest: asked})
	}
	response, err := w.pki.IssueWorker(ctx, request, grpc.WaitForReady(true))
	if err != nil {
		return got, fmt.Errorf("%s: %w", pki.RoleName, err)
	}
	if len(response.GetCertificates()) != len(names) {
		return got, fmt.Errorf("%s gave %d certificates for %d requests", pki.RoleName, len(response.GetCertificates()), len(names))
	}
	for n, der := range response.GetCertificates() {
		parsed, err := x509.ParseCertificate(der)
		if err != nil {
			return got, fmt.Errorf("the certificate for %s: %w", names[n], err)
		}
		if names[n] == nameServing && !slices.ContainsFunc(parsed.IPAddresses, func(known net.IP) bool { return known.Equal(w.address.AsSlice()) }) {
			// kubernetes-pki signs for the addresses that it finds in the cluster's directory, which hears of a new one later than this node.
			return got, fmt.Errorf("%s does not know yet that the node's address is %s", pki.RoleName, w.address)
		}
		got.Until(parsed)
		files[w.at.crt(names[n])] = credential.Certificates(der)
	}
	trust := response.GetTrust()
	files[w.at.file(fileServersCA)], files[w.at.file(fileClientsCA)] = credential.Certificates(trust.GetServers()...), credential.Certificates(trust.GetClients()...)
	// Who signs for API servers.
	got.Revision, got.AtStart = trust.GetRevision(), string(files[w.at.file(fileServersCA)])
	for _, name := range []string{nameKubelet, nameProxy} {
		if files[w.at.kubeconfig(name)], err = credential.Kubeconfig("https://"+port(w.APIPort), w.at.file(fileServersCA), w.at.crt(name), w.at.key(name)); err != nil {
			return got, err
		}
	}
	if err := os.MkdirAll(w.at.run, 0o700); err != nil {
		return got, err
	}
	var problems []error
	for file, content := range files {
		problems = append(problems, renameio.WriteFile(file, content, 0o600, renameio.WithTempDir(filepath.Dir(file))))
	}
	return got, errors.Join(problems...)
}
