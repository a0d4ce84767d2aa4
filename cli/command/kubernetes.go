package command

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/target"
	kubernetesv1 "github.com/reeveproject/reeve/proto/reeve/kubernetes/v1"
)

// The roles of the plugin kubernetes that the commands speak to or of, and the names of what they serve.
const (
	pkiRole            = "kubernetes-pki"
	pkiEndpoint        = "pki"
	controllerRole     = "kubernetes-controller"
	controllerEndpoint = "kubernetes-api"
)

func (c *commands) kubernetes() *cobra.Command {
	return group("kubernetes", "Kubernetes, as the roles of the plugin kubernetes run it",
		c.kubernetesKubeconfig(), c.kubernetesImage(), c.kubernetesCheck(), c.kubernetesPKI(), c.kubernetesCredential())
}

func (c *commands) kubernetesKubeconfig() *cobra.Command {
	var file, name, server string
	cmd := &cobra.Command{
		Use:   "kubeconfig",
		Short: "Write the configuration with which kubectl reaches Kubernetes",
		Long: `kubeconfig writes a configuration for kubectl and other clients of Kubernetes: where the API server is, by which authority to know it, and "reeve kubernetes credential" as what
they run for a certificate whenever they need one. There is no secret in it. It finds the cluster in the same way as this command does, so that it works for as long as the operator is one.

The owner may do everything in Kubernetes; an operator with the role operator may work in all namespaces and with namespaces and nodes; a viewer may read what is no secret. Kubernetes knows them as
the groups reeve:owner, reeve:operator and reeve:viewer, to which more can be given there.

Of several controllers it names one: the first that is Ready on a node whose heartbeat is fresh. A configuration does not move to another one by itself; with --server it names what stands before
all of them.`,
		RunE: c.onCluster(func(ctx context.Context, cluster *target.Target, _ []string) error {
			if server == "" {
				served, err := cluster.Served(ctx, controllerRole, controllerEndpoint)
				if err != nil {
					return err
				}
				if server = served[0].Address; !served[0].Well() {
					c.say("reeve: no " + controllerRole + " is well at present: the configuration names the one of " + served[0].NodeID + "; `reeve status " + served[0].NodeID + "` shows how it is.")
				}
			}
			text, err := kubeconfig(ctx, cluster, name, server)
			if err != nil {
				return err
			}
			if file == "" {
				_, err := c.Stdout.Write(text)
				return err
			}
			if err := renameio.WriteFile(file, text, 0o600, renameio.WithTempDir(filepath.Dir(file))); err != nil {
				return fault.Wrap(fault.Failed, err, "cannot write the configuration", "")
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&file, "file", "", "the file to write, which is replaced (default the standard output)")
	cmd.Flags().StringVar(&name, "name", "reeve", "the name of the cluster, its user and its context in the configuration")
	cmd.Flags().StringVar(&server, "server", "", "the URL of the API server, such as that of a load balancer (default that of a controller which is well)")
	return cmd
}

// kubeconfig makes the configuration.
func kubeconfig(ctx context.Context, cluster *target.Target, name, server string) ([]byte, error) {
	client, err := signer(ctx, cluster)
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, target.CallTimeout)
	defer cancel()
	response, err := client.GetTrust(bounded, &kubernetesv1.GetTrustRequest{})
	if err != nil {
		return nil, fault.FromRPC(err, "cannot read the authority of Kubernetes from "+pkiRole, "")
	}
	var authority bytes.Buffer
	for _, der := range response.GetTrust().GetServers() {
		authority.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	way, err := cluster.Arguments()
	if err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	type named struct {
		Name    string         `json:"name"`
		Cluster map[string]any `json:"cluster,omitempty"`
		User    map[string]any `json:"user,omitempty"`
		Context map[string]any `json:"context,omitempty"`
	}
	return yaml.Marshal(struct {
		APIVersion string  `json:"apiVersion"`
		Kind       string  `json:"kind"`
		Current    string  `json:"current-context"`
		Clusters   []named `json:"clusters"`
		Users      []named `json:"users"`
		Contexts   []named `json:"contexts"`
	}{
		APIVersion: "v1", Kind: "Config", Current: name,
		Clusters: []named{{Name: name, Cluster: map[string]any{"server": server, "tls-server-name": "kubernetes", "certificate-authority-data": base64.StdEncoding.EncodeToString(authority.Bytes())}}},
		Users: []named{{Name: name, User: map[string]any{"exec": map[string]any{
			"apiVersion": execVersion, "command": filepath.Clean(program), "args": append([]string{"kubernetes", "credential"}, way...),
			"interactiveMode": "Never", "provideClusterInfo": false,
		}}}},
		Contexts: []named{{Name: name, Context: map[string]any{"cluster": name, "user": name}}},
	})
}

// execVersion is the version of what kubectl and a program that it runs for a certificate say to each other.
const execVersion = "client.authentication.k8s.io/v1"

func (c *commands) kubernetesCredential() *cobra.Command {
	return &cobra.Command{
		Use:   "credential",
		Short: "Print a short-lived certificate for Kubernetes, for kubectl to run",
		Long: `credential exchanges the operator's certificate for one of Kubernetes, for a key that is made for it, and prints both as kubectl wants them (ExecCredential). The certificate is good for a
quarter of an hour, and no longer than the operator's session. It is what the configuration runs that "reeve kubernetes kubeconfig" writes.`,
		RunE: c.onCluster(func(ctx context.Context, cluster *target.Target, _ []string) error {
			credential, err := credential(ctx, cluster)
			if err != nil {
				return err
			}
			return json.NewEncoder(c.Stdout).Encode(credential)
		}),
	}
}

// execCredential is the answer to kubectl.
type execCredential struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Status     struct {
		Expires     time.Time `json:"expirationTimestamp"`
		Certificate string    `json:"clientCertificateData"`
		Key         string    `json:"clientKeyData"`
	} `json:"status"`
}

// credential has a new key certified.
func credential(ctx context.Context, cluster *target.Target) (*execCredential, error) {
	client, err := signer(ctx, cluster)
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, target.CallTimeout)
	defer cancel()
	response, err := client.IssueOperator(bounded, &kubernetesv1.IssueOperatorRequest{CertificateRequest: request})
	if err != nil {
		return nil, fault.FromRPC(err, pkiRole+" gives no certificate for Kubernetes", "")
	}
	made := &execCredential{APIVersion: execVersion, Kind: "ExecCredential"}
	made.Status.Expires = response.GetExpires().AsTime()
	made.Status.Certificate = pemText("CERTIFICATE", response.GetCertificate())
	made.Status.Key = pemText("PRIVATE KEY", der)
	return made, nil
}

func pemText(kind string, der []byte) string {
	var text strings.Builder
	_ = pem.Encode(&text, &pem.Block{Type: kind, Bytes: der}) // nothing fails that writes into a text
	return text.String()
}

// signer is kubernetes-pki, on whatever node.
func signer(ctx context.Context, cluster *target.Target) (kubernetesv1.PKIServiceClient, error) {
	conn, err := cluster.Role(ctx, pkiRole, pkiEndpoint)
	if err != nil {
		return nil, err
	}
	return kubernetesv1.NewPKIServiceClient(conn), nil
}
