package controller

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/google/renameio/v2"
	"google.golang.org/grpc"

	"github.com/reeveproject/reeve/plugins/kubernetes/internal/credential"
	"github.com/reeveproject/reeve/plugins/kubernetes/internal/pki"

	kubernetesv1 "github.com/reeveproject/reeve/proto/reeve/kubernetes/v1"
)

// issued are the certificates that a control plane works with, by the names of their files.
func issued() map[string]kubernetesv1.ControllerPurpose {
	return map[string]kubernetesv1.ControllerPurpose{
		nameServing:      kubernetesv1.ControllerPurpose_CONTROLLER_PURPOSE_API_SERVER,
		nameToKubelets:   kubernetesv1.ControllerPurpose_CONTROLLER_PURPOSE_API_SERVER_TO_KUBELETS,
		nameToAggregated: kubernetesv1.ControllerPurpose_CONTROLLER_PURPOSE_API_SERVER_TO_AGGREGATED,
		nameManager:      kubernetesv1.ControllerPurpose_CONTROLLER_PURPOSE_CONTROLLER_MANAGER,
		nameScheduler:    kubernetesv1.ControllerPurpose_CONTROLLER_PURPOSE_SCHEDULER,
		nameSupervisor:   kubernetesv1.ControllerPurpose_CONTROLLER_PURPOSE_SUPERVISOR,
	}
}

// fetch makes keys, has them certified, and writes everything that the programs work with into files, which they read again by themselves, but for what they read only when they start.
func (c *Configuration) fetch(ctx context.Context, client kubernetesv1.PKIServiceClient, at place) (got credential.Granted, err error) {
	ctx, cancel := context.WithTimeout(ctx, credential.IssueTime)
	defer cancel()
	request := &kubernetesv1.IssueControllerRequest{}
	files := make(map[string][]byte)
	var names []string
	for name, purpose := range issued() {
		template := &x509.CertificateRequest{}
		if name == nameServing {
			template.DNSNames, template.IPAddresses = c.servingNames(at)
		}
		private, asked, err := credential.NewKey(template)
		if err != nil {
			return got, err
		}
		files[key(name)] = private
		names = append(names, name)
		request.Requests = append(request.Requests, &kubernetesv1.ControllerCertificateRequest{Purpose: purpose, CertificateRequest: asked})
	}
	response, err := client.IssueController(ctx, request, grpc.WaitForReady(true))
	if err != nil {
		return got, fmt.Errorf("%s: %w", pki.RoleName, err)
	}
	if len(response.GetCertificates()) != len(names) || len(response.GetServiceAccountKeys()) == 0 {
		return got, fmt.Errorf("%s gave %d certificates for %d requests, and %d keys of service accounts", pki.RoleName, len(response.GetCertificates()), len(names), len(response.GetServiceAccountKeys()))
	}
	for n, der := range response.GetCertificates() {
		parsed, err := x509.ParseCertificate(der)
		if err != nil {
			return got, fmt.Errorf("the certificate for %s: %w", names[n], err)
		}
		got.Until(parsed)
		files[certificate(names[n])] = credential.Certificates(der)
	}
	trust := response.GetTrust()
	files[fileServersCA], files[fileClientsCA], files[fileAggregatorsCA] = credential.Certificates(trust.GetServers()...), credential.Certificates(trust.GetClients()...), credential.Certificates(trust.GetAggregators()...)
	if err := accounts(files, response.GetServiceAccountKeys()); err != nil {
		return got, err
	}
	for _, name := range []string{nameManager, nameScheduler} {
		if files[kubeconfig(name)], err = credential.Kubeconfig(at.url(c.Port), at.file(fileServersCA), at.file(certificate(name)), at.file(key(name))); err != nil {
			return got, err
		}
	}
	// The public keys of service accounts and the one that signs, and the authority that kube-controller-manager tells to pods.
	got.Revision, got.AtStart = trust.GetRevision(), string(slices.Concat(files[fileAccounts], files[fileAccountsKey], files[fileServersCA]))
	return got, write(at.directory, files)
}

// servingNames are by what the API server is reached.
func (c *Configuration) servingNames(at place) (names []string, addresses []net.IP) {
	names = []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + c.ClusterDomain, "localhost"}
	all := append(c.serviceAddresses(), netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback())
	for _, name := range append([]string{at.address}, c.ServerNames...) {
		if address, err := netip.ParseAddr(name); err == nil {
			all = append(all, address)
		} else {
			names = append(names, name)
		}
	}
	for _, address := range all {
		addresses = append(addresses, address.AsSlice())
	}
	return slices.Compact(names), addresses
}

// accounts adds the keys of service accounts: the one that signs, and by which tokens are known.
func accounts(files map[string][]byte, keys [][]byte) error {
	var public bytes.Buffer
	for n, der := range keys {
		parsed, err := x509.ParsePKCS8PrivateKey(der)
		if err != nil {
			return fmt.Errorf("a key of service accounts: %w", err)
		}
		private, ok := parsed.(*ecdsa.PrivateKey)
		if !ok {
			return fmt.Errorf("a key of service accounts is a %T", parsed)
		}
		if n == 0 {
			files[fileAccountsKey] = credential.PrivateKey(der)
		}
		known, err := x509.MarshalPKIXPublicKey(private.Public())
		if err != nil {
			return err
		}
		public.Write(credential.PublicKey(known))
	}
	files[fileAccounts] = public.Bytes()
	return nil
}

// write replaces the files, each as a whole. A program that reads a certificate and its key between the two finds that they do not belong together, and reads them again.
func write(directory string, files map[string][]byte) error {
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return err
	}
	var problems []error
	for name, content := range files {
		problems = append(problems, renameio.WriteFile(filepath.Join(directory, name), content, 0o600, renameio.WithTempDir(directory)))
	}
	return errors.Join(problems...)
}
