package e2e

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// scrape is what a node's metrics say.
type scrape map[string]*dto.MetricFamily

// parse reads metrics as Prometheus does. They must be right as a whole, since a scraper that finds a mistake drops all of them.
func parse(t *testing.T, text string) scrape {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("the metrics cannot be read: %v\n%s", err, text)
	}
	return families
}

// value returns the value of the only series of a family that has these labels and values, given in turn.
func (s scrape) value(family string, labels ...string) (float64, error) {
	found, value := 0, 0.0
	for _, metric := range s[family].GetMetric() {
		if !has(metric, labels) {
			continue
		}
		found++
		switch s[family].GetType() {
		case dto.MetricType_COUNTER:
			value = metric.GetCounter().GetValue()
		case dto.MetricType_GAUGE:
			value = metric.GetGauge().GetValue()
		case dto.MetricType_HISTOGRAM:
			value = float64(metric.GetHistogram().GetSampleCount())
		default:
			value = metric.GetUntyped().GetValue()
		}
	}
	if found != 1 {
		return 0, fmt.Errorf("%d series %s have %v, want 1", found, family, labels)
	}
	return value, nil
}

func has(metric *dto.Metric, labels []string) bool {
	for n := 0; n+1 < len(labels); n += 2 {
		fits := false
		for _, pair := range metric.GetLabel() {
			fits = fits || pair.GetName() == labels[n] && pair.GetValue() == labels[n+1]
		}
		if !fits {
			return false
		}
	}
	return true
}

func (s scrape) want(t *testing.T, ok func(float64) bool, family string, labels ...string) {
	t.Helper()
	if value, err := s.value(family, labels...); err != nil || !ok(value) {
		t.Errorf("%s of %v is %v (%v)", family, labels, value, err)
	}
}

func exactly(want float64) func(float64) bool { return func(got float64) bool { return got == want } }

func moreThan(bound float64) func(float64) bool { return func(got float64) bool { return got > bound } }

// served is where the node says, in its log, that it serves its metrics.
var served = regexp.MustCompile(`serving the node's metrics.*?address=(\S+)`)

// TestMetrics reads the metrics of a node in both ways, with roles that have metrics of their own, good and bad.
func TestMetrics(t *testing.T) {
	t.Parallel()
	asAnyUser(t, func(t *testing.T, c *devcluster.Cluster) {
		began := float64(time.Now().Unix())
		c.WriteParameters(t, func(p *nodev1.Parameters) { p.Metrics = &nodev1.Metrics{Listen: "127.0.0.1:0"} })
		node := c.Up(t).Node.ID
		before := addLighthouse(t, c)
		for range 3 {
			if _, err := count(http.MethodPost, before.Role("lighthouse")); err != nil {
				t.Fatal(err)
			}
		}
		c.Kill(t, before.Role("hostsfile").PID)
		status := c.Await(t, patience, "another hostsfile", func(s devcluster.Status) bool {
			return s.Up(withLighthouse...) && s.Role("hostsfile").PID != before.Role("hostsfile").PID
		})
		for name, read := range map[string]func() string{
			"reeve node metrics": func() string { return c.MustReeve(t, "node", "metrics", node).Stdout },
			"HTTP":               func() string { return overHTTP(t, c) },
		} {
			all, text := whole(t, read, withLighthouse...)
			for _, role := range status.Roles {
				all.want(t, exactly(1), "reeve_role_state", "role", role.Role, "state", "Ready")
				all.want(t, exactly(0), "reeve_role_state", "role", role.Role, "state", "Failed")
				all.want(t, exactly(float64(role.Restarts)), "reeve_role_restarts_total", "role", role.Role)
				all.want(t, moreThan(began-2), "reeve_role_start_time_seconds", "role", role.Role)
				all.want(t, moreThan(1<<20), "reeve_role_resident_memory_bytes", "role", role.Role)
				all.want(t, moreThan(-1), "reeve_role_cpu_seconds_total", "role", role.Role) // the kernel counts in ticks
			}
			all.want(t, moreThan(0), "reeve_role_cpu_seconds_total", "role", "consensus")
			all.want(t, exactly(1), "reeve_role_restarts_total", "role", "hostsfile")
			all.want(t, moreThan(0), "reeve_store_database_size_bytes")
			all.want(t, moreThan(0), "reeve_store_leader_changes_total")
			all.want(t, exactly(1), "reeve_membership_state", "state", "Home")
			all.want(t, exactly(3), "lighthouse_count", "role", "lighthouse")
			if t.Failed() {
				t.Logf("%s:\n%s", name, text)
				return
			}
		}
		badMetrics(t, c, node)
	})
}

// whole reads metrics until what these roles say of themselves is among them: none is waited for longer than a second, which is short on a busy machine.
func whole(t *testing.T, read func() string, roles ...string) (all scrape, text string) {
	t.Helper()
	eventually.True(t, patience, "a scrape with what all roles say", func() (bool, string) {
		text = read()
		all = parse(t, text)
		for _, role := range roles {
			if up, err := all.value("reeve_role_scrape_up", "role", role); err != nil || up != 1 {
				return false, fmt.Sprintf("%s: %v (%v)", role, up, err)
			}
		}
		return true, ""
	})
	return all, text
}

// overHTTP reads the metrics as a scraper does.
func overHTTP(t *testing.T, c *devcluster.Cluster) string {
	t.Helper()
	match := served.FindStringSubmatch(c.Log(t))
	if match == nil {
		t.Fatalf("the log of reeved does not say where the metrics are served")
	}
	text, err := request(http.MethodGet, "http://"+match[1]+"/metrics")
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{"/", "/debug/pprof/"} {
		if body, err := request(http.MethodGet, "http://"+match[1]+other); err == nil {
			t.Errorf("there is something at %s: %s", other, body)
		}
	}
	return text
}

// badMetrics adds roles whose metrics are none: those of the others are there all the same, and are theirs.
func badMetrics(t *testing.T, c *devcluster.Cluster, node string) {
	t.Helper()
	c.MustReeve(t, "plugin", "add", "--approve", buildPlugin(t, "meters", nil))
	meters := []string{"meter", "garbage", "flood", "liar", "silent"}
	for _, role := range meters {
		c.MustReeve(t, "node", "role", "add", node, role)
	}
	core := c.Core(t)
	var all scrape
	eventually.True(t, patience, "a whole scrape", func() (bool, string) {
		// One of the roles never answers: that the metrics come at all shows that nobody waits for it.
		all = parse(t, c.MustReeve(t, "node", "metrics", node).Stdout)
		_, meter := all.value("meter_flashes_total", "role", "meter", "lamp", "a")
		_, lighthouse := all.value("lighthouse_count", "role", "lighthouse")
		return meter == nil && lighthouse == nil, fmt.Sprint(meter, lighthouse)
	})
	all.want(t, exactly(7), "meter_flashes_total", "role", "meter", "lamp", "a")
	all.want(t, exactly(3), "lighthouse_count", "role", "lighthouse")
	all.want(t, exactly(0), "reeve_role_restarts_total", "role", "consensus")
	if value, err := all.value("liar_series", "role", "consensus"); err == nil {
		t.Errorf("a role speaks for another one: liar_series of consensus is %v", value)
	}
	for _, family := range all {
		for _, metric := range family.GetMetric() {
			if has(metric, []string{"role", "garbage"}) && !strings.HasPrefix(family.GetName(), "reeve_") {
				t.Errorf("garbage has become %s", family)
			}
		}
	}
	// It costs them their metrics, and nothing else.
	after := c.AwaitUp(t, patience, append(meters, withLighthouse...)...)
	for _, role := range meters {
		if after.Role(role).Restarts != 0 {
			t.Errorf("%s was started again: %s", role, after)
		}
	}
	if now := c.Core(t); now.PID != core.PID {
		t.Errorf("reeved is %s, before %s", now, core)
	}
	parse(t, overHTTP(t, c))
}
