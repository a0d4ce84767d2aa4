package service_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/reeveproject/reeve/plugins/consensus/internal/service"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
	"github.com/reeveproject/reeve/proto/limits"
)

// TestMetrics reads etcd's metrics in both ways: as the core does, and on the socket.
func TestMetrics(t *testing.T) {
	directory := storetest.Directory(t)
	p := start(t, directory)
	if _, err := p.Form(storetest.Context(t), formNew()); err != nil {
		t.Fatal(err)
	}
	var written bytes.Buffer
	if err := p.service.WriteMetrics(storetest.Context(t), &written); err != nil {
		t.Fatal(err)
	}
	checkMetrics(t, written.Bytes())

	socket := filepath.Join(directory, "run", service.MetricsSocket)
	info, err := os.Stat(socket)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the socket has mode %o", info.Mode().Perm())
	}
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	defer client.CloseIdleConnections()
	for path, want := range map[string]int{"/metrics": http.StatusOK, "/": http.StatusNotFound, "/debug/pprof/": http.StatusNotFound, "/v3/kv/range": http.StatusNotFound} {
		code, body := get(t, &client, path)
		if code != want {
			t.Errorf("%s: %d, want %d", path, code, want)
		}
		if code == http.StatusOK {
			checkMetrics(t, body)
		}
	}
	p.stop()
	if _, err := os.Stat(socket); err == nil {
		t.Error("the socket outlived the role")
	}
}

func get(t *testing.T, client *http.Client, path string) (int, []byte) {
	t.Helper()
	request, err := http.NewRequestWithContext(storetest.Context(t), http.MethodGet, "http://etcd"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, body
}

// checkMetrics fails the test if a text is not etcd's metrics, or is more than a role may have.
func checkMetrics(t *testing.T, text []byte) {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"etcd_server_has_leader", "etcd_server_leader_changes_seen_total", "etcd_disk_wal_fsync_duration_seconds", "etcd_mvcc_db_total_size_in_bytes",
		"process_resident_memory_bytes",
	} {
		if families[name] == nil {
			t.Errorf("no %s", name)
		}
	}
	if len(text) > limits.Metrics/2 {
		t.Errorf("%d bytes", len(text))
	}
	for _, secret := range []string{"peer.sock", "cluster-a"} {
		if strings.Contains(string(text), secret) {
			t.Errorf("they hold %q", secret)
		}
	}
	t.Logf("%d bytes, %d families", len(text), len(families))
}

// TestMetricsWithoutASocket has the socket's place be taken: the store is served all the same.
func TestMetricsWithoutASocket(t *testing.T) {
	directory := storetest.Directory(t)
	storetest.Mkdir(t, directory, "run", service.MetricsSocket)
	p := start(t, directory)
	if _, err := p.Form(storetest.Context(t), formNew()); err != nil {
		t.Error(err)
	}
}
