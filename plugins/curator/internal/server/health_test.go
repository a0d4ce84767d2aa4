package server_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/grpc/codes"

	"github.com/reeveproject/reeve/plugins/curator/internal/etcdtest"
	"github.com/reeveproject/reeve/plugins/curator/internal/metrics"
	"github.com/reeveproject/reeve/plugins/curator/internal/server"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// A curator is well while it serves, while it has nothing to serve yet, and while its store is away, which no new process would mend.
func TestHealth(t *testing.T) {
	own, err := etcdtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := own.Stop(); err != nil {
			t.Error(err)
		}
	})
	health := new(server.Health)
	well := func(when string) {
		t.Helper()
		if err := health.Check(inTime(t)); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	well("before it runs")
	c := newClusterOn(t, own, func(config *server.Config) {
		config.Health, config.AnswerWithin, config.ProbeEvery = health, 4*time.Second, 20*time.Millisecond
	})
	well("while it serves")
	own.Pause()
	ctx := inTime(t)
	if _, err := c.curator.host.state.Wait(ctx, func(state string) bool { return strings.HasPrefix(state, "degraded") }); err != nil {
		t.Fatal(err)
	}
	well("while the store is away")
	if err := own.Resume(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.curator.host.state.Wait(ctx, func(state string) bool { return state == "ready" }); err != nil {
		t.Fatal(err)
	}
	well("with the store again")
	if err := c.curator.stop(); err != nil {
		t.Fatal(err)
	}
	well("after it ran")
}

// One address cannot have all connections: of those on which nobody was let in the oldest are closed, so that they keep nobody out.
func TestConnectionsPerPeer(t *testing.T) {
	c := newCluster(t)
	var open []net.Conn
	defer func() {
		for _, connection := range open {
			_ = connection.Close()
		}
	}()
	closed := func(connection net.Conn) bool {
		// A server that waits for a handshake, which it does for 10 s, says nothing.
		if err := connection.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		_, err := connection.Read(make([]byte, 1))
		timeout, ok := err.(net.Error)
		return !ok || !timeout.Timeout()
	}
	for range 300 {
		connection, err := net.Dial("tcp", c.curator.address)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, connection)
	}
	if _, err := c.asOwner().ListNodes(inTime(t), &clusterv1.ListNodesRequest{}); err != nil {
		t.Errorf("while another holds all that he can have: %v", err)
	}
	refused := 0
	for _, connection := range open[:200] {
		if closed(connection) {
			refused++
		}
	}
	if refused != 200 {
		t.Errorf("of the first 200 of 300 connections %d were closed", refused)
	}
}

func TestMetrics(t *testing.T) {
	counted := metrics.New()
	c := newClusterOn(t, etcd, func(config *server.Config) {
		config.Metrics, config.UnprovenBurst, config.UnprovenEvery = counted, 1, time.Hour
	})
	alice := c.addOperator("alice", roleViewer)
	client := alice.client()
	stream, err := client.WatchNode(inTime(t), &clusterv1.WatchNodeRequest{NodeId: c.id})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	_, err = client.GetNode(t.Context(), &clusterv1.GetNodeRequest{NodeId: "reeve-ffffffff"})
	wantCode(t, err, codes.NotFound)
	for range 3 {
		// The connection of a stranger is closed soon after the first refusal.
		_, err = c.as(selfSigned(t, newKey(t))).ListNodes(t.Context(), &clusterv1.ListNodesRequest{})
		wantCode(t, err, codes.Unauthenticated)
	}
	values := scrape(t, counted.Write)
	// The metrics follow the CA by themselves.
	for ctx := inTime(t); values[`curator_ca_not_after_seconds`] == 0 && ctx.Err() == nil; {
		values = scrape(t, counted.Write)
	}
	for name, want := range map[string]float64{
		`curator_calls_total{code="OK", rpc="AddOperator"}`:            1,
		`curator_calls_total{code="NotFound", rpc="GetNode"}`:          1,
		`curator_calls_total{code="Unauthenticated", rpc="ListNodes"}`: 3,
		`curator_call_seconds_count{rpc="Login"}`:                      1,
		`curator_watches{rpc="WatchNode"}`:                             1,
		`curator_audit_entries_total{kind="change"}`:                   1,
		`curator_audit_entries_total{kind="call"}`:                     2,
		`curator_audit_entries_total{kind="refused"}`:                  1,
		`curator_session_certificates_total{operator_role="viewer"}`:   1,
		`curator_audit_failures_total`:                                 0,
		`curator_ca_not_after_seconds`:                                 float64(leafOf(t, certificate(nil, c.ca)).NotAfter.Unix()),
	} {
		if got, ok := values[name]; !ok || got != want {
			t.Errorf("%s is %v (%t), want %v", name, got, ok, want)
		}
	}
	if got := values[`curator_connections{caller="operator"}`]; got < 1 {
		t.Errorf("%v connections of people are open", got)
	}
	if got := values["curator_svid_not_after_seconds"]; got < float64(time.Now().Unix()) {
		t.Errorf("the certificate that it serves with ended at %v", got)
	}
	if got := values["curator_audit_suppressed_total"]; got < 1 {
		t.Errorf("%v calls were left out", got)
	}
}

// scrape reads what is written, by what a series is called.
func scrape(t *testing.T, write func(context.Context, io.Writer) error) map[string]float64 {
	t.Helper()
	var text bytes.Buffer
	if err := write(t.Context(), &text); err != nil {
		t.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(&text)
	if err != nil {
		t.Fatal(err)
	}
	values := make(map[string]float64)
	for name, family := range families {
		if strings.HasPrefix(name, "reeve_") {
			t.Errorf("%s is a name of the node's own", name)
		}
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, label := range metric.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", label.GetName(), label.GetValue()))
			}
			of := ""
			if len(labels) > 0 {
				of = "{" + strings.Join(labels, ", ") + "}"
			}
			values[name+of] = metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
			if metric.GetHistogram() != nil {
				values[name+"_count"+of] = float64(metric.GetHistogram().GetSampleCount())
			}
		}
	}
	return values
}
