package metrics_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/metrics"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// get asks by HTTP.
func get(t *testing.T, client *http.Client, method, url, accept string) (int, http.Header, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(within(t), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if accept != "" {
		request.Header.Set("Accept", accept)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Header, string(body)
}

func client(t *testing.T) *http.Client {
	c := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func TestHTTP(t *testing.T) {
	n := start(t, metrics.Config{Listen: "127.0.0.1:0"})
	n.run(map[string]grpc.ClientConnInterface{"ant": says(good)})
	c, url := client(t), "http://"+n.Address()
	code, header, body := get(t, c, http.MethodGet, url+"/metrics", "")
	if code != http.StatusOK || !strings.HasPrefix(header.Get("Content-Type"), "text/plain; version=0.0.4") {
		t.Errorf("%d, %v", code, header)
	}
	check(t, body)
	scrape{t, body}.want(`good_total{role="ant"} 1`)

	code, header, body = get(t, c, http.MethodGet, url+"/metrics", "application/openmetrics-text;version=1.0.0")
	if code != http.StatusOK || !strings.HasPrefix(header.Get("Content-Type"), "application/openmetrics-text") || !strings.HasSuffix(body, "\n# EOF\n") {
		t.Errorf("OpenMetrics: %d, %v, %s", code, header, body)
	}
	for _, test := range []struct {
		method, path string
		want         int
	}{
		{http.MethodPost, "/metrics", http.StatusMethodNotAllowed},
		{http.MethodHead, "/metrics", http.StatusOK},
		{http.MethodGet, "/", http.StatusNotFound},
		{http.MethodGet, "/metrics/x", http.StatusNotFound},
		{http.MethodGet, "/debug/vars", http.StatusNotFound},
	} {
		if code, _, _ := get(t, c, test.method, url+test.path, ""); code != test.want {
			t.Errorf("%s %s: %d, want %d", test.method, test.path, code, test.want)
		}
	}
	if _, err := metrics.New(metrics.Config{Listen: "nonsense"}); err == nil || !strings.Contains(err.Error(), "metrics.listen") {
		t.Errorf("what is no address: %v", err)
	}
	address := n.Address()
	n.stop()
	if connection, err := net.Dial("tcp", address); err == nil {
		_ = connection.Close()
		t.Error("the port is still open")
	}
}

// lines are those of a log.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

func (l lines) next(t *testing.T) string {
	t.Helper()
	select {
	case line := <-l:
		return line
	case <-within(t).Done():
		t.Fatal("nothing is said")
		return ""
	}
}

// Somebody else may have the address when the node starts: it runs, and serves as soon as it can.
func TestAddressThatIsTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := taken.Addr().String()
	logged := make(lines, 16)
	n := start(t, metrics.Config{Listen: address, Log: hclog.New(&hclog.LoggerOptions{Output: logged})})
	if line := logged.next(t); !strings.Contains(line, "[ERROR]") || !strings.Contains(line, address) {
		t.Errorf("it is said: %s", line)
	}
	if _, err := n.Text(within(t)); err != nil || n.Address() != "" {
		t.Errorf("at %q: %v", n.Address(), err)
	}
	if problem, _ := n.Problem().Get(); !strings.Contains(problem, address) || !strings.Contains(problem, "metrics.listen") {
		t.Errorf("the node says: %q", problem)
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	if line := logged.next(t); !strings.Contains(line, "serving") || n.Address() != address {
		t.Errorf("it is said: %s", line)
	}
	if problem, _ := n.Problem().Get(); problem != "" {
		t.Errorf("the node says: %q", problem)
	}
	if code, _, _ := get(t, client(t), http.MethodGet, "http://"+address+"/metrics", ""); code != http.StatusOK {
		t.Errorf("%d", code)
	}
}

// TestCrowd has more ask at the same time than are answered.
func TestCrowd(t *testing.T) {
	n := start(t, metrics.Config{Listen: "127.0.0.1:0"})
	held := make(chan struct{})
	asked := make(chan struct{}, 100)
	n.run(map[string]grpc.ClientConnInterface{"slow": speaker(func(ctx context.Context) (string, error) {
		asked <- struct{}{}
		select {
		case <-held:
			return "", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	})})
	const crowd = 12
	codes := make(chan int, crowd)
	var all sync.WaitGroup
	for range crowd {
		all.Go(func() {
			code, _, _ := get(t, client(t), http.MethodGet, "http://"+n.Address()+"/metrics", "")
			codes <- code
		})
	}
	<-asked
	count := make(map[int]int)
	for range crowd - 4 { // those for which there is no place are told at once
		count[<-codes]++
	}
	close(held)
	all.Wait()
	close(codes)
	for code := range codes {
		count[code]++
	}
	if count[http.StatusOK] < 4 || count[http.StatusServiceUnavailable] == 0 || count[http.StatusOK]+count[http.StatusServiceUnavailable] != crowd {
		t.Errorf("the answers: %v", count)
	}
	// One that has no turn gives up with its context.
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := n.Text(ended); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestCloseWithoutRun(t *testing.T) {
	m, err := metrics.New(metrics.Config{Listen: "127.0.0.1:0", Status: &start(t, metrics.Config{}).status})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if again, err := metrics.New(metrics.Config{Listen: m.Address()}); err != nil {
		t.Error(err)
	} else if err := again.Close(); err != nil {
		t.Error(err)
	}
}

// refusing answers a call by its instance ID.
type refusing struct {
	rolev1.UnimplementedRoleServiceServer
}

func (refusing) Stop(_ context.Context, request *rolev1.StopRequest) (*rolev1.StopResponse, error) {
	if request.GetInstanceId() == "" {
		return nil, status.Error(codes.NotFound, "no")
	}
	return &rolev1.StopResponse{}, nil
}

func (refusing) Watch(*rolev1.WatchRequest, grpc.ServerStreamingServer[rolev1.WatchResponse]) error {
	return errors.New("no")
}

func TestCalls(t *testing.T) {
	n := start(t, metrics.Config{})
	n.Interceptors("other")
	unary, stream := n.Interceptors("node")
	if again, _ := n.Interceptors("node"); again == nil {
		t.Error("the same server cannot ask twice")
	}
	s := grpc.NewServer(grpc.ChainUnaryInterceptor(unary), grpc.ChainStreamInterceptor(stream), grpc.WaitForHandlers(true))
	rolev1.RegisterRoleServiceServer(s, refusing{})
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	calls := rolev1.NewRoleServiceClient(conn)
	for _, id := range []string{"a", "a", ""} {
		_, _ = calls.Stop(within(t), &rolev1.StopRequest{InstanceId: id})
	}
	watch, err := calls.Watch(within(t), &rolev1.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err == nil {
		t.Error("the stream did not fail")
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	s.GracefulStop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	const call = `grpc_method="Stop",grpc_service="reeve.role.v1.RoleService",grpc_type="unary",server="node"`
	n.scrape(t).want(
		`reeve_grpc_server_handled_total{grpc_code="OK",`+call+`} 2`,
		`reeve_grpc_server_handled_total{grpc_code="NotFound",`+call+`} 1`,
		`reeve_grpc_server_handled_total{grpc_code="Unknown",grpc_method="Watch",grpc_service="reeve.role.v1.RoleService",grpc_type="server_stream",server="node"} 1`,
		`reeve_grpc_server_handling_seconds_count{`+call+`} 3`,
	)
}
