package worker

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"
)

// askTime is how long an API server may take to answer, and maxAnswer how much of an answer is read: a node has at most a thousand pods.
const (
	askTime   = 10 * time.Second
	maxAnswer = 64 << 20
)

// nodeClient speaks to the API servers as the node itself, which may do to its Node and its pods what kubelet may.
type nodeClient struct {
	at   paths
	base string
	http *http.Client
}

func newNodeClient(at paths, apiPort int) *nodeClient {
	return &nodeClient{at: at, base: "https://" + port(apiPort), http: &http.Client{Timeout: askTime, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{
			MinVersion: tls.VersionTLS12,
			// The authorities may be replaced while the role runs: what the file holds counts, when a connection is made.
			InsecureSkipVerify: true, //nolint:gosec // VerifyConnection does it
			VerifyConnection: func(state tls.ConnectionState) error {
				return verify(at.file(fileServersCA), state)
			},
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				pair, err := tls.LoadX509KeyPair(at.crt(nameKubelet), at.key(nameKubelet))
				return &pair, err
			},
		}, IdleConnTimeout: time.Minute, MaxIdleConnsPerHost: 2,
	}}}
}

// verify checks that a server is an API server, by the authorities in a file.
func verify(file string, state tls.ConnectionState) error {
	roots, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(roots) {
		return fmt.Errorf("%s holds no certificate", file)
	}
	if len(state.PeerCertificates) == 0 {
		return errors.New("the server has no certificate")
	}
	intermediates := x509.NewCertPool()
	for _, each := range state.PeerCertificates[1:] {
		intermediates.AddCert(each)
	}
	_, err = state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: pool, Intermediates: intermediates, DNSName: "kubernetes", KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	return err
}

func (c *nodeClient) close() { c.http.CloseIdleConnections() }

// answerError is an answer that is no success.
type answerError struct {
	status int
	text   string
}

func (e *answerError) Error() string {
	return fmt.Sprintf("the API server answers %d: %.300s", e.status, e.text)
}

func (c *nodeClient) call(ctx context.Context, method, path, contentType string, body, into any) error {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, content)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", "application/json")
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	_ = response.Body.Close()
	if response.StatusCode == http.StatusUnauthorized {
		// The connection proves itself by a certificate of an authority that was retired since: the next one has the present certificate.
		c.close()
	}
	if err != nil {
		return err
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		var status struct {
			Message string `json:"message"`
		}
		if json.Unmarshal(answer, &status) == nil && status.Message != "" {
			answer = []byte(status.Message)
		}
		return &answerError{status: response.StatusCode, text: string(answer)}
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(answer, into)
}

// kubeNode is what is looked at of a Node.
type kubeNode struct {
	Spec struct {
		PodCIDRs      []string `json:"podCIDRs"`
		Unschedulable bool     `json:"unschedulable"`
	} `json:"spec"`
	Status struct {
		Conditions []struct {
			Type    string `json:"type"`
			Status  string `json:"status"`
			Reason  string `json:"reason"`
			Message string `json:"message"`
		} `json:"conditions"`
	} `json:"status"`
}

// node reads the Node of this node.
func (c *nodeClient) node(ctx context.Context) (*kubeNode, error) {
	node := new(kubeNode)
	return node, c.call(ctx, http.MethodGet, "/api/v1/nodes/"+url.PathEscape(c.at.node), "", nil, node)
}

// ready says why the node is not ready in Kubernetes; nil: it is.
func (n *kubeNode) ready() error {
	for _, condition := range n.Status.Conditions {
		switch {
		case condition.Type != "Ready":
		case condition.Status == "True":
			return nil
		default:
			return fmt.Errorf("the node is not ready in Kubernetes: %.300s", condition.Message)
		}
	}
	return errors.New("it is not known in Kubernetes yet how the node is")
}

// cordon has the scheduler give the node no more pods, or again.
func (c *nodeClient) cordon(ctx context.Context, off bool) error {
	return c.call(ctx, http.MethodPatch, "/api/v1/nodes/"+url.PathEscape(c.at.node), "application/strategic-merge-patch+json",
		map[string]any{"spec": map[string]any{"unschedulable": off}}, nil)
}

// pod is what is looked at of a Pod.
type pod struct {
	Metadata struct {
		Name        string            `json:"name"`
		Namespace   string            `json:"namespace"`
		Annotations map[string]string `json:"annotations"`
		Owners      []struct {
			Kind string `json:"kind"`
		} `json:"ownerReferences"`
	} `json:"metadata"`
	Status struct {
		Phase string `json:"phase"`
	} `json:"status"`
}

// mirror is the annotation of a pod that is a file on the node: it is not in the API server's power.
const mirror = "kubernetes.io/config.mirror"

// moves reports whether a pod can go to another node, or goes away: one of a DaemonSet belongs to this one.
func (p *pod) moves() bool {
	if p.Metadata.Annotations[mirror] != "" {
		return false
	}
	for _, owner := range p.Metadata.Owners {
		if owner.Kind == "DaemonSet" {
			return false
		}
	}
	return p.Status.Phase != "Succeeded" && p.Status.Phase != "Failed"
}

// pods are the pods of this node.
func (c *nodeClient) pods(ctx context.Context) ([]pod, error) {
	var list struct {
		Items []pod `json:"items"`
	}
	return list.Items, c.call(ctx, http.MethodGet, "/api/v1/pods?fieldSelector="+url.QueryEscape("spec.nodeName="+c.at.node), "", nil, &list)
}

// evict asks for a pod to go, as its disruption budget allows.
func (c *nodeClient) evict(ctx context.Context, of *pod) error {
	return c.call(ctx, http.MethodPost, "/api/v1/namespaces/"+url.PathEscape(of.Metadata.Namespace)+"/pods/"+url.PathEscape(of.Metadata.Name)+"/eviction", "application/json", map[string]any{
		"apiVersion": "policy/v1", "kind": "Eviction", "metadata": map[string]any{"name": of.Metadata.Name, "namespace": of.Metadata.Namespace},
	}, nil)
}
