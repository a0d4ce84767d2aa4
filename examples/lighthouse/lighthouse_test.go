package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/sdk/leaktest"
	"github.com/reeveproject/reeve/sdk/roletest"
)

// The test's binary is the plugin if this variable is set.
const asPlugin = "LIGHTHOUSE_TEST_PLUGIN"

func TestMain(m *testing.M) {
	if os.Getenv(asPlugin) != "" {
		main()
	}
	leaktest.VerifyTestMain(m)
}

// memory is a store of one key.
type memory struct {
	mu       sync.Mutex
	value    string
	revision int64
	err      error
}

func (m *memory) Get(ctx context.Context, _ string, _ ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil || m.revision == 0 {
		return &clientv3.GetResponse{}, m.err
	}
	return &clientv3.GetResponse{Kvs: []*mvccpb.KeyValue{{Value: []byte(m.value), ModRevision: m.revision}}}, ctx.Err()
}

func (m *memory) Txn(context.Context) clientv3.Txn { return &transaction{memory: m} }

type transaction struct {
	clientv3.Txn
	memory   *memory
	revision int64
	value    string
}

func (t *transaction) If(comparisons ...clientv3.Cmp) clientv3.Txn {
	comparison := comparisons[0]
	t.revision = comparison.GetCompare().GetModRevision()
	return t
}

func (t *transaction) Then(operations ...clientv3.Op) clientv3.Txn {
	t.value = string(operations[0].ValueBytes())
	return t
}

func (t *transaction) Commit() (*clientv3.TxnResponse, error) {
	t.memory.mu.Lock()
	defer t.memory.mu.Unlock()
	if t.memory.revision != t.revision {
		return &clientv3.TxnResponse{}, nil
	}
	t.memory.value = t.value
	t.memory.revision++
	return &clientv3.TxnResponse{Succeeded: true}, nil
}

func request(handler http.Handler, method, path string) (status int, body string) {
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequest(method, path, nil))
	return recorder.Code, strings.TrimSpace(recorder.Body.String())
}

func lightOf(store keyValues) *light { return &light{counter: &counter{store: store, key: "count"}} }

// In synthetic time a request has its 3 s however busy the machine is.
func TestCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handler := handler(lightOf(&memory{}), hclog.NewNullLogger())
		for _, step := range []struct {
			method, path string
			status       int
			body         string
		}{
			{"GET", "/", 200, `{"count":0}`},
			{"POST", "/", 200, `{"count":1}`},
			{"POST", "/", 200, `{"count":2}`},
			{"GET", "/", 200, `{"count":2}`},
			{"DELETE", "/", 405, "Method Not Allowed"},
			{"GET", "/healthz", 200, `{"health":"ok"}`},
			{"POST", "/other", 404, "404 page not found"},
			{"GET", "/", 200, `{"count":2}`},
		} {
			if status, body := request(handler, step.method, step.path); status != step.status || body != step.body {
				t.Errorf("%s %s: %d %s, want %d %s", step.method, step.path, status, body, step.status, step.body)
			}
		}
	})
}

func TestNobodysCountIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handler := handler(lightOf(&memory{}), hclog.NewNullLogger())
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				for range 10 {
					if status, body := request(handler, "POST", "/"); status != 200 {
						t.Errorf("%d %s", status, body)
					}
				}
			})
		}
		all.Wait()
		if _, body := request(handler, "GET", "/"); body != `{"count":200}` {
			t.Errorf("got %s", body)
		}
	})
}

func TestErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, test := range []struct {
			store  *memory
			status int
			text   string
		}{
			{&memory{err: errors.New("no leader")}, 503, "the consensus store is not available: no leader"},
			{&memory{value: "many", revision: 1}, 500, `the stored counter is not a number`},
			{&memory{value: "18446744073709551615", revision: 1}, 500, "18446744073709551615 is the last one"},
		} {
			status, body := request(handler(lightOf(test.store), hclog.NewNullLogger()), "POST", "/")
			var reply struct{ Error string }
			if err := json.Unmarshal([]byte(body), &reply); err != nil || status != test.status || !strings.Contains(reply.Error, test.text) {
				t.Errorf("%d %s, want %d and %q", status, body, test.status, test.text)
			}
		}
	})
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, store := &lighthouse{}, &memory{}
		metrics := func() string {
			var text strings.Builder
			if err := l.metrics(t.Context(), &text); err != nil {
				t.Error(err)
			}
			var values []string
			for line := range strings.Lines(text.String()) {
				if !strings.HasPrefix(line, "#") {
					values = append(values, strings.TrimSpace(line))
				}
			}
			return strings.Join(values, ", ")
		}
		if got := metrics(); got != "" {
			t.Errorf("before it serves: %s", got)
		}
		l.light.Store(lightOf(store))
		handler := handler(l.light.Load(), hclog.NewNullLogger())
		for range 3 {
			request(handler, "POST", "/")
		}
		if got := metrics(); got != "lighthouse_unanswered_total 0, lighthouse_count 3" {
			t.Errorf("after three: %s", got)
		}
		store.err = errors.New("no leader")
		request(handler, "GET", "/")
		if got := metrics(); got != "lighthouse_unanswered_total 1" {
			t.Errorf("without the store: %s", got)
		}
	})
}

func TestHealth(t *testing.T) {
	l := &lighthouse{}
	if err := l.checkHealth(t.Context()); err != nil {
		t.Errorf("before it serves: %v", err)
	}
	l.light.Store(lightOf(&memory{err: errors.New("no leader")}))
	socket := filepath.Join(t.TempDir(), "http.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: handler(l.light.Load(), hclog.NewNullLogger())}}
	server.Start()
	l.light.Load().socket = socket
	if err := l.checkHealth(t.Context()); err != nil {
		t.Errorf("without the store: %v", err)
	}
	server.Close()
	if err := l.checkHealth(t.Context()); err == nil {
		t.Error("it is well though nobody serves")
	}
}

func launch(t *testing.T) *roletest.Process {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return roletest.Launch(t, executable, asPlugin+"=1", "GORACE=atexit_sleep_ms=10")
}

// The role serves, with an error that says why, though the store is away, and ends in order.
func TestStoreIsAway(t *testing.T) {
	host, process := roletest.NewHost(t), launch(t)
	host.OpenStore(host.Socket()+".none", "lighthouse")
	if err := process.Start(host, "lighthouse", ""); err != nil {
		t.Fatal(err)
	}
	// It is Ready only for as long as it takes to find out that the store is away.
	patient, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	serves := process.Status().Watch()
	now, err := serves.Next(patient)
	for err == nil && len(now.GetEndpoints()) == 0 {
		now, err = serves.Next(patient)
	}
	if err != nil || len(now.GetEndpoints()) != 1 || now.GetEndpoints()[0].GetName() != "http" {
		t.Fatalf("endpoints %v", now.GetEndpoints())
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 2 * time.Minute}
	response, err := client.Get(now.GetEndpoints()[0].GetAddress())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var reply struct{ Error string }
	if err := json.NewDecoder(response.Body).Decode(&reply); err != nil || response.StatusCode != http.StatusServiceUnavailable ||
		!strings.Contains(reply.Error, "not available") {
		t.Errorf("%d %q, %v", response.StatusCode, reply.Error, err)
	}
	if err := process.CheckHealth(); err != nil {
		t.Error(err)
	}
	if got := process.Metrics(); !strings.Contains(got, "\nlighthouse_unanswered_total 1\n") || strings.Contains(got, "lighthouse_count ") {
		t.Errorf("metrics: %s", got)
	}
	if now := process.AwaitDegraded(); !strings.Contains(now.GetReason(), "the consensus store does not answer") {
		t.Errorf("it is Degraded since %q", now.GetReason())
	}
	if err := process.Stop(time.Minute); err != nil {
		t.Error(err)
	}
	if code := process.Exit(); code != 0 {
		t.Errorf("the process ended with status %d", code)
	}
}

func TestNoStore(t *testing.T) {
	host, process := roletest.NewHost(t), launch(t)
	host.NoStore()
	if err := process.Start(host, "lighthouse", ""); err != nil {
		t.Fatal(err)
	}
	if now := process.AwaitFailed(); !strings.Contains(now.GetReason(), "no consensus store") {
		t.Errorf("reason %q", now.GetReason())
	}
}

func TestConfigurationIsRefused(t *testing.T) {
	host, process := roletest.NewHost(t), launch(t)
	for _, document := range []string{`{"listen": "nowhere"}`, `{"listen": "127.0.0.1:99999"}`, `{"port": 1}`} {
		if err := process.Start(host, "lighthouse", document); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", document, err)
		}
	}
}

func TestPortInUse(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	host, process := roletest.NewHost(t), launch(t)
	host.OpenStore(host.Socket()+".none", "lighthouse")
	if err := process.Start(host, "lighthouse", fmt.Sprintf(`{"listen": %q}`, server.Listener.Addr())); err != nil {
		t.Fatal(err)
	}
	if now := process.AwaitFailed(); !strings.Contains(now.GetReason(), "address already in use") {
		t.Errorf("reason %q", now.GetReason())
	}
}
