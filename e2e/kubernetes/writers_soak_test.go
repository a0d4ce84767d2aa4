//go:build soak

package kubernetes_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
)

// httpClient is a client of API servers with the owner's certificate, for more requests than kubectl can make.
func (p *plane) httpClient(t *testing.T) (client *http.Client, server string) {
	t.Helper()
	certificate, err := tls.X509KeyPair(p.certificateNow(t))
	if err != nil {
		t.Fatal(err)
	}
	said := p.mustKubectl(t, "config", "view", "--raw", "-o", "jsonpath={.clusters[0].cluster.server} {.clusters[0].cluster.certificate-authority-data}").Stdout
	server, encoded, _ := strings.Cut(said, " ")
	authorities, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authorities)
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, Certificates: []tls.Certificate{certificate}}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 30 * time.Second}, server
}

// writers make objects through an API server, one after another each, and keep the names of those that were acknowledged.
type writers struct {
	client *http.Client
	url    string
	stop   context.CancelFunc
	group  sync.WaitGroup

	mu           sync.Mutex
	acknowledged []string
	failed       int
	last         string
}

func (p *plane) write(t *testing.T, n int) *writers {
	t.Helper()
	client, server := p.httpClient(t)
	ctx, stop := context.WithCancel(t.Context())
	w := &writers{client: client, url: server + "/api/v1/namespaces/default/configmaps", stop: stop}
	for writer := range n {
		w.group.Go(func() {
			for number := 0; ctx.Err() == nil; number++ {
				w.make(ctx, fmt.Sprintf("written-%d-%d", writer, number))
			}
		})
	}
	t.Cleanup(w.end)
	return w
}

func (w *writers) make(ctx context.Context, name string) {
	body := fmt.Sprintf(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": %q, "labels": {"by": "writers"}}, "data": {"is": %q}}`, name, name)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := w.client.Do(request)
	said := ""
	if err == nil {
		text, _ := io.ReadAll(response.Body)
		said = fmt.Sprint(response.StatusCode, " ", string(text))
		_ = response.Body.Close()
	} else {
		said = err.Error()
	}
	made := err == nil && response.StatusCode == http.StatusCreated
	w.mu.Lock()
	if made {
		w.acknowledged = append(w.acknowledged, name)
	} else if ctx.Err() == nil {
		w.failed, w.last = w.failed+1, said
	}
	w.mu.Unlock()
	if !made {
		// An election takes processors, too.
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// await waits until so many more objects were acknowledged.
func (w *writers) await(t *testing.T, more int) {
	t.Helper()
	count := func() (int, string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.acknowledged), fmt.Sprintf("%d acknowledged, %d failed, the last one: %s", len(w.acknowledged), w.failed, w.last)
	}
	began, _ := count()
	eventually.True(t, soon, fmt.Sprintf("%d more objects are acknowledged", more), func() (bool, string) {
		now, said := count()
		return now >= began+more, said
	})
}

func (w *writers) end() {
	w.stop()
	w.group.Wait()
}

// leader is the number of the node whose member leads the store, as all members have it.
func leader(t *testing.T, c *devcluster.Cluster) (leading int) {
	t.Helper()
	eventually.True(t, soon, "all members of the store agree on a leader", func() (bool, string) {
		leading = 0
		agreed := ""
		nodes := c.Nodes(t)
		for number, node := range nodes {
			if node.Status == nil || node.Status.Store == nil || !node.Status.Store.Quorum || node.Status.Store.LeaderID == "" {
				return false, fmt.Sprintf("node %d knows none", number)
			}
			store := node.Status.Store
			if agreed != "" && agreed != store.LeaderID {
				return false, "they have several"
			}
			if agreed = store.LeaderID; store.MemberID == agreed {
				leading = number
			}
		}
		return leading != 0, fmt.Sprint(nodes)
	})
	return leading
}
