package hostile

import (
	"fmt"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/proto/limits"
)

// mostSeries is how many series of its own a role may have in the node's metrics: docs/reference/metrics.md.
const mostSeries = 20_000

// scrape reads the node's metrics while a role lies in its own, and judges that all others are there, and are right.
func (s *scene) scrape(t *testing.T, o *Outcome, liar string) {
	t.Helper()
	var problems []string
	// A scrape waits for no role longer than a second, which is short on a busy machine: a later one finds those that were late.
	_, ok := eventually.Try(s.ctx, patience, time.Second, func() (bool, string) {
		before := s.refresh(t).Role(liar)
		result := s.cluster.Reeve(t, "node", "metrics", s.node)
		after := s.refresh(t)
		var note string
		if result.Code != 0 {
			problems = []string{"the metrics cannot be read: " + shorten(result.Stderr)}
		} else {
			note, problems = judgeMetrics(result.Stdout, after, liar)
		}
		if before.PID == 0 || after.Role(liar).PID != before.PID {
			problems = append(problems, "the role does not run while its metrics are asked for: nothing was tested")
		}
		if len(problems) == 0 {
			o.Note += "; " + note
		}
		return len(problems) == 0, ""
	})
	if ok {
		return
	}
	for _, problem := range problems {
		o.escape("%s", problem)
	}
}

// judgeMetrics says what is wrong with the metrics of a node, one role of which lies in its own.
func judgeMetrics(text string, status devcluster.Status, liar string) (note string, problems []string) {
	wrong := func(format string, arguments ...any) { problems = append(problems, fmt.Sprintf(format, arguments...)) }
	if len(text) > limits.Message {
		wrong("%d MiB of metrics", len(text)>>20)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		return "", append(problems, "the metrics are none: "+shorten(err.Error()))
	}
	// only is the value of the only series of a family with these labels.
	only := func(family string, labels ...string) float64 {
		found := seriesOf(families[family], labels...)
		if len(found) != 1 {
			wrong("%d series %s%v", len(found), family, labels)
			return -1
		}
		return found[0].GetGauge().GetValue() + found[0].GetCounter().GetValue() + found[0].GetUntyped().GetValue()
	}
	is := func(want float64, family string, labels ...string) {
		if got := only(family, labels...); got != want {
			wrong("%s%v is %v", family, labels, got)
		}
	}
	is(1, "reeve_membership_state", "state", "Home")
	if only("reeve_store_database_size_bytes") <= 0 || only("go_goroutines", "role", "") <= 0 {
		wrong("what the node says of itself is missing")
	}
	for _, role := range append([]string{"victim", liar}, devcluster.DefaultRoles...) {
		is(1, "reeve_role_state", "role", role, "state", "Ready")
	}
	for _, role := range append([]string{"victim"}, devcluster.DefaultRoles...) {
		is(1, "reeve_role_scrape_up", "role", role)
	}
	states := len(seriesOf(families["reeve_role_state"], "role", "consensus"))
	for _, role := range status.Roles {
		if got := len(seriesOf(families["reeve_role_state"], "role", role.Role)); got != states {
			wrong("%s has %d states in the metrics, and others %d", role.Role, got, states)
		}
	}
	is(0, "reeve_role_scrape_up", "role", liar)
	own := 0
	for name, family := range families {
		if strings.HasPrefix(name, "reeve_") {
			continue
		}
		own += len(seriesOf(family, "role", liar))
		// The victim has no metrics of its own.
		if n := len(seriesOf(family, "role", "victim")); n > 0 {
			wrong("%d series %s in the name of the victim", n, name)
		}
	}
	if own > mostSeries {
		wrong("%d series of the role", own)
	}
	return fmt.Sprintf("%d series of its own in %d kB of metrics", own, len(text)>>10), problems
}

// seriesOf are the series of a family that have these labels, given as names and values in turn.
func seriesOf(family *dto.MetricFamily, labels ...string) (found []*dto.Metric) {
	for _, metric := range family.GetMetric() {
		has := make(map[string]string)
		for _, pair := range metric.GetLabel() {
			has[pair.GetName()] = pair.GetValue()
		}
		fits := true
		for n := 0; n+1 < len(labels); n += 2 {
			fits = fits && has[labels[n]] == labels[n+1]
		}
		if fits {
			found = append(found, metric)
		}
	}
	return found
}

// TestJudgeMetrics checks that metrics that lack something, or say something in another's name, are not taken for whole.
func TestJudgeMetrics(t *testing.T) {
	var good strings.Builder
	good.WriteString("reeve_membership_state{state=\"Home\"} 1\nreeve_store_database_size_bytes 1\ngo_goroutines 1\n")
	status := devcluster.Status{}
	for _, role := range append([]string{"victim", "liar"}, devcluster.DefaultRoles...) {
		status.Roles = append(status.Roles, devcluster.Role{Role: role})
		up := 1
		if role == "liar" {
			up = 0
		}
		fmt.Fprintf(&good, "reeve_role_state{role=%[1]q,state=\"Ready\"} 1\nreeve_role_state{role=%[1]q,state=\"Failed\"} 0\nreeve_role_scrape_up{role=%[1]q} %d\n", role, up)
	}
	if _, problems := judgeMetrics(good.String(), status, "liar"); len(problems) > 0 {
		t.Errorf("good metrics: %q", problems)
	}
	many := func() string {
		var text strings.Builder
		for n := range mostSeries + 1 {
			fmt.Fprintf(&text, "own{role=\"liar\",n=\"%d\"} 1\n", n)
		}
		return text.String()
	}
	for what, text := range map[string]string{
		"none": "", "broken": good.String() + "{} {} {}\n", "one role less": strings.ReplaceAll(good.String(), `"curator"`, `"other"`),
		"a forged state": good.String() + "reeve_role_state{role=\"victim\"} 0\n", "in another's name": good.String() + "a{role=\"victim\"} 1\n",
		"too many": good.String() + many(), "too large": good.String() + "# " + strings.Repeat("x", limits.Message) + "\n",
		"the lies are shown": strings.ReplaceAll(good.String(), `reeve_role_scrape_up{role="liar"} 0`, `reeve_role_scrape_up{role="liar"} 1`),
	} {
		if _, problems := judgeMetrics(text, status, "liar"); len(problems) == 0 {
			t.Errorf("%s: nothing is wrong", what)
		}
	}
}
