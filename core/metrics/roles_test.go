package metrics_test

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/metrics"
	"github.com/reeveproject/reeve/proto/limits"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

const good = `# HELP good_total What is good.
# TYPE good_total counter
good_total 1
`

// TestRolesSpeakForThemselves merges what several roles say.
func TestRolesSpeakForThemselves(t *testing.T) {
	s := speaking(t, map[string]string{
		"ant": `# HELP shared_total Whoever comes first says what it is.
# TYPE shared_total counter
shared_total{code="a\"b\\c\nd",role="x"} 1
shared_total{role="y",exported_role="z"} 2 1700000000000
shared_total{role="",empty=""} 3
# TYPE go_goroutines gauge
go_goroutines 7
# TYPE wait_seconds histogram
wait_seconds_bucket{le="+Inf"} 3
wait_seconds_bucket{le="1"} 2
wait_seconds_sum 4.5
wait_seconds_count 3
`,
		"bee": `# HELP shared_total Another text.
# TYPE shared_total counter
shared_total 9
untyped{quantile="0.5"} 1
# TYPE wait_seconds histogram
wait_seconds_bucket{le="+Inf"} 0
wait_seconds_sum 0
wait_seconds_count 0
# TYPE size summary
size{quantile="0.9"} NaN
size_sum 1
size_count 1
`,
		"silent": "",
	}).until(t, `reeve_role_scrape_up{role="silent"} 1`)
	s.want(
		`# HELP shared_total Whoever comes first says what it is.`,
		`shared_total{code="a\"b\\c\nd",exported_role="x",role="ant"} 1`,
		`shared_total{exported_exported_role="y",exported_role="z",role="ant"} 2`,
		`shared_total{role="ant"} 3`,
		`shared_total{role="bee"} 9`,
		`go_goroutines{role="ant"} 7`,
		`wait_seconds_bucket{role="ant",le="1"} 2`,
		`wait_seconds_bucket{role="ant",le="+Inf"} 3`,
		`wait_seconds_count{role="bee"} 0`,
		`# TYPE untyped untyped`,
		`untyped{quantile="0.5",role="bee"} 1`,
		`size{role="bee",quantile="0.9"} NaN`,
		`reeve_role_scrape_up{role="ant"} 1`,
		`reeve_role_scrape_series{role="ant"} 5`,
		`reeve_role_scrape_series{role="silent"} 0`,
	)
	if s.value("go_goroutines") == 0 {
		t.Error("the core's own goroutines have been displaced")
	}
	if strings.Contains(s.text, "rejected_total{") {
		t.Errorf("something was left out:\n%s", s.text)
	}
}

// TestHostileRole has a role say what would be in the way of the rest. The rest is always whole, and what was left out is counted.
func TestHostileRole(t *testing.T) {
	tests := []struct {
		name, text string
		// What is left out, why, and how much of it; and what is shown of the role all the same.
		reason string
		times  int
		shown  []string
		// down says that all of the role's metrics are missing.
		down bool
	}{
		{name: "garbage", text: "\x00\xff{{{\n", reason: "malformed", times: 1, down: true},
		{name: "half a line", text: good + "good_total", reason: "malformed", times: 1, down: true},
		{name: "no end of the last line", text: good + "x 1", reason: "malformed", times: 1, down: true},
		{name: "metric without a name", text: "{} 1\n", reason: "malformed", times: 1, down: true},
		{name: "names of a later format", text: `{"a b"} 1` + "\n", reason: "malformed", times: 1, down: true},
		{name: "label that is not UTF-8", text: "x{a=\"\xff\"} 1\n", reason: "malformed", times: 1, down: true},
		{name: "a label twice", text: `x{a="1",a="2"} 1` + "\n", reason: "malformed", times: 1, down: true},
		{name: "negative count", text: "# TYPE h histogram\nh_count -1\n", reason: "malformed", times: 1, down: true},
		{name: "too many series", text: strings.Repeat("x 1\n", 20_001), reason: "too_large", times: 1, down: true},
		{name: "too many lines", text: strings.Repeat("\n", 60_001), reason: "too_large", times: 1, down: true},
		{name: "too long a line", text: "x{a=\"" + strings.Repeat("b", 16<<10) + "\"} 1\n", reason: "too_large", times: 1, down: true},
		{name: "too many labels", text: "x{" + labels(65) + "} 1\n", reason: "too_large", times: 1, down: true},
		{name: "too many bytes", text: strings.Repeat(strings.Repeat("#", 1023)+"\n", 1<<10) + "#\n", reason: "too_large", times: 1, down: true},
		{name: "the node's name", text: "reeve_node_info{node=\"mine\"} 1\n" + good, reason: "reserved_name", times: 1},
		{name: "a name like the node's", text: "reeve_more 1\nreeve_ 1\n" + good, reason: "reserved_name", times: 2},
		{name: "the core's name as another type", text: "# TYPE go_goroutines counter\ngo_goroutines 1\n" + good, reason: "conflicting_type", times: 1},
		{
			name: "the store's name as another type", text: "# TYPE good_total gauge\ngood_total 2\nfine 1\n", reason: "conflicting_type", times: 1,
			shown: []string{`fine{role="hostile"} 1`},
		},
		{name: "name of a histogram's sample", text: "waits_count 1\nwaits_bucket 1\nwaits_sum 1\n" + good, reason: "conflicting_name", times: 3},
		{
			name: "histogram with another's names", text: "# TYPE base histogram\nbase_bucket{le=\"+Inf\"} 1\nbase_sum 1\nbase_count 1\n" + good,
			reason: "conflicting_name", times: 1,
		},
		{name: "gauge histogram", text: "# TYPE g gaugehistogram\ng_bucket{le=\"+Inf\"} 1\ng_count 1\ng_sum 1\n" + good, reason: "unsupported_type", times: 1},
		{name: "label of Prometheus' own", text: "x{__address__=\"a\"} 1\n" + good, reason: "reserved_label", times: 1},
		{name: "the same series twice", text: "x{a=\"1\",b=\"\"} 1\nx{a=\"1\"} 2\n" + good, reason: "duplicate", times: 1, shown: []string{`x{a="1",role="hostile"} 1`}},
		{name: "buckets that shrink", text: histogram(`{le="1"} 3`, `{le="+Inf"} 2`) + good, reason: "inconsistent", times: 1},
		{name: "a bucket twice", text: histogram(`{le="1"} 1`, `{le="1"} 1`, `{le="+Inf"} 2`) + good, reason: "inconsistent", times: 1},
		{name: "no last bucket", text: histogram(`{le="1"} 2`) + good, reason: "inconsistent", times: 1},
		{name: "another count", text: histogram(`{le="+Inf"} 3`) + good, reason: "inconsistent", times: 1},
		{name: "half a summary", text: "# TYPE s summary\ns_sum 1\n" + good, reason: "inconsistent", times: 1},
		{name: "a quantile twice", text: "# TYPE s summary\ns{quantile=\"1\"} 1\ns{quantile=\"1\"} 1\ns_sum 1\ns_count 1\n" + good, reason: "inconsistent", times: 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n := speaking(t, map[string]string{
				"hostile": test.text,
				// Named after the other, but the node relies on it.
				"store": good + "# TYPE base_sum gauge\nbase_sum 1\n# TYPE waits histogram\nwaits_bucket{le=\"+Inf\"} 0\nwaits_sum 0\nwaits_count 0\n",
				"zebra": good,
			})
			s := n.until(t, `reeve_role_scrape_up{role="zebra"} 1`)
			count := s.value(fmt.Sprintf(`reeve_role_metrics_rejected_total{reason=%q,role="hostile"}`, test.reason))
			if count < float64(test.times) || int(count)%test.times != 0 {
				t.Errorf("%v left out, want %d at every scrape", count, test.times)
			}
			s.want(`good_total{role="store"} 1`, `good_total{role="zebra"} 1`, `waits_count{role="store"} 0`, `base_sum{role="store"} 1`)
			s.want(test.shown...)
			if test.down {
				s.want(`reeve_role_scrape_up{role="hostile"} 0`, `reeve_role_scrape_series{role="hostile"} 0`)
				return
			}
			s.want(`reeve_role_scrape_up{role="hostile"} 1`)
			if test.shown == nil {
				s.want(`good_total{role="hostile"} 1`, `reeve_role_scrape_series{role="hostile"} 1`)
			}
		})
	}
}

func labels(count int) string {
	var all []string
	for n := range count {
		all = append(all, fmt.Sprintf(`l%d="\""`, n))
	}
	return strings.Join(all, ",")
}

func histogram(buckets ...string) string {
	return "# TYPE h histogram\nh_bucket" + strings.Join(buckets, "\nh_bucket") + "\nh_sum 1\nh_count 2\n"
}

// TestBounds has a role say as much as it may.
func TestBounds(t *testing.T) {
	var text strings.Builder
	for n := range 19_999 {
		fmt.Fprintf(&text, "x{n=\"%d\"} 1\n", n)
	}
	text.WriteString("y{" + labels(64) + "} 1\n")
	text.WriteString(strings.Repeat("#"+strings.Repeat("x", 998)+"\n", (limits.Metrics-text.Len())/1000))
	s := speaking(t, map[string]string{"large": text.String()}).until(t, `reeve_role_scrape_up{role="large"} 1`)
	s.want(`reeve_role_scrape_series{role="large"} 20000`)
}

// TestTogether has many roles say as much as each of them may. What they say must still fit into a message.
func TestTogether(t *testing.T) {
	text := strings.Repeat("x", 1000)
	texts := make(map[string]string)
	for n := range 10 {
		var all strings.Builder
		for series := range 1000 {
			fmt.Fprintf(&all, "x%d_%d{a=%q} 1\n", n, series, text)
		}
		texts[fmt.Sprintf("role-%02d", n)] = all.String()
	}
	texts["store"] = good
	s := speaking(t, texts).until(t, `reeve_role_scrape_up{role="role-00"} 1`)
	s.want(`reeve_role_scrape_up{role="store"} 1`, `reeve_role_scrape_up{role="role-09"} 0`)
	if s.value(`reeve_role_metrics_rejected_total{reason="no_room",role="role-09"}`) == 0 || len(s.text) > limits.Message {
		t.Errorf("%d bytes", len(s.text))
	}
}

// TestRolesThatDoNotAnswer has roles refuse, hang and answer wrongly.
func TestRolesThatDoNotAnswer(t *testing.T) {
	n := start(t, metrics.Config{})
	hang := func(ctx context.Context) (string, error) {
		<-ctx.Done()
		return "", status.FromContextError(ctx.Err()).Err()
	}
	fail := func(code codes.Code) speaker {
		return func(context.Context) (string, error) { return good, status.Error(code, "no") }
	}
	n.run(map[string]grpc.ClientConnInterface{
		"gone": fail(codes.Unavailable), "huge": fail(codes.ResourceExhausted), "hung": speaker(hang), "hung-too": speaker(hang),
		"none": fail(codes.Unimplemented), "well": says(good),
	})
	s := n.until(t, `reeve_role_scrape_up{role="well"} 1`)
	s.want(
		`reeve_role_scrape_up{role="gone"} 0`, `reeve_role_scrape_up{role="hung"} 0`, `reeve_role_scrape_up{role="none"} 1`,
		`reeve_role_scrape_up{role="huge"} 0`, `good_total{role="well"} 1`,
	)
	if s.value(`reeve_role_metrics_rejected_total{reason="too_large",role="huge"}`) == 0 {
		t.Error("too large an answer was not counted")
	}
	// A role that hangs is given some time.
	if took := s.value(`reeve_role_scrape_duration_seconds{role="hung-too"}`); took < 0.5 {
		t.Errorf("asking a role that hangs took %g s", took)
	}

	// A role that goes takes its metrics along.
	n.run(map[string]grpc.ClientConnInterface{"well": says(good)})
	if s := n.scrape(t); strings.Contains(s.text, `scrape_up{role="hung"}`) {
		t.Errorf("of a role that is gone: %s", s.text)
	}
}

// server answers GetMetrics with so many bytes.
type server struct {
	rolev1.UnimplementedRoleServiceServer
	size int
}

func (s server) GetMetrics(context.Context, *rolev1.GetMetricsRequest) (*rolev1.GetMetricsResponse, error) {
	return &rolev1.GetMetricsResponse{Text: []byte(strings.Repeat("#\n", s.size/2))}, nil
}

// TestLargeMessages has real connections carry what is just small enough, and what is not.
func TestLargeMessages(t *testing.T) {
	n := start(t, metrics.Config{})
	connect := func(name string, size int) grpc.ClientConnInterface {
		path := filepath.Join(t.TempDir(), name)
		listener, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		s := grpc.NewServer(grpc.WaitForHandlers(true))
		rolev1.RegisterRoleServiceServer(s, server{size: size})
		served := make(chan error, 1)
		go func() { served <- s.Serve(listener) }()
		conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = conn.Close()
			s.Stop()
			if err := <-served; err != nil {
				t.Error(err)
			}
		})
		return conn
	}
	n.run(map[string]grpc.ClientConnInterface{"small": connect("a", 100<<10), "large": connect("b", 8<<20)})
	s := n.until(t, `reeve_role_scrape_up{role="small"} 1`)
	// On a busy machine the time of a scrape may be over before 8 MiB have come.
	const counted = `reeve_role_metrics_rejected_total{reason="too_large",role="large"}`
	for ctx := within(t); !strings.Contains(s.text, counted); s = n.scrape(t) {
		if ctx.Err() != nil {
			t.Fatalf("a message that is too large is never counted\n%s", s.text)
		}
	}
	s.want(`reeve_role_scrape_up{role="large"} 0`)
	if s.value(counted) == 0 {
		t.Error("a message that is too large was not counted")
	}
}
