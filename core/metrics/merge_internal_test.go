package metrics

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/protobuf/proto"
)

// FuzzMerge takes any text from a role, twice, beside metrics of the node's own. Whatever it is, the whole must be valid in every format, hold the node's
// own unchanged, and hold of each role nothing but what is labelled as that role's.
func FuzzMerge(f *testing.F) {
	for _, seed := range []string{
		"", "x 1\n", "# HELP x y\n# TYPE x counter\nx{a=\"b\",role=\"c\"} 1 2\n", "reeve_own 2\n", "# TYPE reeve_own histogram\n", "go_info 1\n",
		"# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 1.5\nh_sum 1\nh_count 1.5\n# TYPE h_count counter\nh_count 1\n",
		"# TYPE s summary\ns{quantile=\"0.5\"} 1\ns_sum 1\ns_count 1\n", "# TYPE s gaugehistogram\ns_bucket{le=\"+Inf\"} 1\n", "{\"a b\",c=\"d\"} 1\n",
		"x{__name__=\"y\"} 1\n", "x{a=\"\\\"\\\\\\n\"} NaN\n", "\x00\xff", "# HELP x \xff\nx 1\n", "x{role=\"\",exported_role=\"\"} +Inf\nx 2\n",
		"y_total 1\n# TYPE y counter\ny 1\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		own := &dto.MetricFamily{
			Name: proto.String("go_info"), Type: dto.MetricType_GAUGE.Enum(), Metric: []*dto.Metric{{Gauge: &dto.Gauge{Value: proto.Float64(1)}}},
		}
		all := newMerge(func(role string, why reason) {
			if role == "" || why == "" {
				t.Errorf("left out of %q: %q", role, why)
			}
		})
		all.own(proto.Clone(own).(*dto.MetricFamily))
		for _, role := range []string{"ant", "bee"} {
			families, _, err := read(text)
			if err != nil {
				return
			}
			all.role(role, families)
		}
		families := all.sorted()
		if index := slices.IndexFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == own.GetName() }); index < 0 ||
			!proto.Equal(families[index].Metric[0], own.Metric[0]) {
			t.Fatalf("the node's own are gone: %v", families)
		}
		for _, family := range families {
			for n, metric := range family.Metric {
				if family.GetName() == own.GetName() && n == 0 {
					continue
				}
				if role := roleOf(metric); role != "ant" && role != "bee" {
					t.Fatalf("%s: a series of %q", family.GetName(), role)
				}
			}
		}
		for _, format := range []expfmt.FormatType{expfmt.TypeTextPlain, expfmt.TypeOpenMetrics, expfmt.TypeProtoDelim} {
			checkFormat(t, families, format)
		}
	})
}

func roleOf(metric *dto.Metric) string {
	for _, l := range metric.Label {
		if l.GetName() == roleLabel {
			return l.GetValue()
		}
	}
	return ""
}

// checkFormat writes the families in a format and, where it can be read again, reads them.
func checkFormat(t *testing.T, families []*dto.MetricFamily, format expfmt.FormatType) {
	t.Helper()
	var text bytes.Buffer
	encoder := expfmt.NewEncoder(&text, expfmt.NewFormat(format))
	for _, family := range families {
		if err := encoder.Encode(family); err != nil {
			t.Fatalf("format %v: %v", format, err)
		}
	}
	if format == expfmt.TypeOpenMetrics {
		return
	}
	series, want := make(map[string]bool), 0
	decoder := expfmt.NewDecoder(&text, expfmt.NewFormat(format))
	for {
		var family dto.MetricFamily
		err := decoder.Decode(&family)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("format %v: %v", format, err)
		}
		if !model.LegacyValidation.IsValidMetricName(family.GetName()) {
			t.Fatalf("the name %q", family.GetName())
		}
		for _, metric := range family.Metric {
			slices.SortFunc(metric.Label, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
			series[family.GetName()+"\xff"+keyOf(metric)] = true
		}
	}
	for _, family := range families {
		want += len(family.Metric)
	}
	if len(series) != want {
		t.Fatalf("format %v: %d series became %d", format, want, len(series))
	}
}
