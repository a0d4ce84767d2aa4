package metrics

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
)

// roleLabel says whose a series is. A label that a role gives the same name is moved out of its way as Prometheus itself does it.
const (
	roleLabel = "role"
	exported  = "exported_"
)

// merge puts the families of the node and of its roles together such that the whole is valid.
type merge struct {
	families map[string]*dto.MetricFamily
	// taken is the names that samples of a family have, a histogram's suffixes included, with the name of the family.
	taken  map[string]string
	reject func(role string, why reason)
}

func newMerge(reject func(role string, why reason)) *merge {
	return &merge{families: make(map[string]*dto.MetricFamily), taken: make(map[string]string), reject: reject}
}

// own adds a family of the node's own.
func (m *merge) own(family *dto.MetricFamily) {
	for _, name := range sampleNames(family) {
		m.taken[name] = family.GetName()
	}
	m.families[family.GetName()] = family
}

// role adds what a role says, without what would be in the way of what is there, and returns how many series it was. Each role may be added once. The
// families are the merge's from then on.
func (m *merge) role(role string, families map[string]*dto.MetricFamily) (series int) {
	for _, name := range slices.Sorted(maps.Keys(families)) {
		family := families[name]
		if why := m.refuse(family); why != "" {
			m.reject(role, why)
			continue
		}
		accepted := m.series(role, family)
		if len(accepted) == 0 {
			continue
		}
		series += len(accepted)
		known := m.families[name]
		if known == nil {
			known = &dto.MetricFamily{Name: proto.String(name), Type: family.Type}
			if help := strings.ToValidUTF8(family.GetHelp(), "\uFFFD"); help != "" {
				known.Help = &help
			}
			m.families[name] = known
			for _, name := range sampleNames(known) {
				m.taken[name] = known.GetName()
			}
		}
		known.Metric = append(known.Metric, accepted...)
	}
	return series
}

// refuse says why a family of a role cannot be shown; empty: it can.
func (m *merge) refuse(family *dto.MetricFamily) reason {
	name := family.GetName()
	if strings.HasPrefix(name, reserved) {
		return reservedName
	}
	switch family.GetType() {
	case dto.MetricType_COUNTER, dto.MetricType_GAUGE, dto.MetricType_UNTYPED, dto.MetricType_SUMMARY, dto.MetricType_HISTOGRAM:
	default:
		return unsupportedType
	}
	if known := m.families[name]; known != nil && known.GetType() != family.GetType() {
		return conflictingType
	}
	for _, sample := range sampleNames(family) {
		if owner, ok := m.taken[sample]; ok && owner != name {
			return conflictingName
		}
	}
	return ""
}

// sampleNames is under which names the samples of a family appear, and that of the family itself.
func sampleNames(family *dto.MetricFamily) []string {
	name := family.GetName()
	switch family.GetType() {
	case dto.MetricType_SUMMARY:
		return []string{name, name + "_sum", name + "_count"}
	case dto.MetricType_HISTOGRAM, dto.MetricType_GAUGE_HISTOGRAM:
		return []string{name, name + "_bucket", name + "_sum", name + "_count"}
	}
	return []string{name}
}

// series returns the series of a family of a role that can be shown, with their labels.
func (m *merge) series(role string, family *dto.MetricFamily) []*dto.Metric {
	accepted := make([]*dto.Metric, 0, len(family.Metric))
	seen := make(map[string]bool, len(family.Metric))
	for _, metric := range family.Metric {
		if slices.ContainsFunc(metric.Label, func(l *dto.LabelPair) bool { return strings.HasPrefix(l.GetName(), "__") }) {
			m.reject(role, reservedLabel)
			continue
		}
		if !tidy(metric) {
			m.reject(role, inconsistent)
			continue
		}
		label(metric, role)
		key := keyOf(metric)
		if seen[key] {
			m.reject(role, duplicate)
			continue
		}
		seen[key] = true
		// The time is that of the scrape: a role cannot place what it says into the past or the future.
		metric.TimestampMs = nil
		accepted = append(accepted, metric)
	}
	return accepted
}

// label gives a series the label that says whose it is, and sorts its labels. An empty label is as none.
func label(metric *dto.Metric, role string) {
	metric.Label = slices.DeleteFunc(metric.Label, func(l *dto.LabelPair) bool { return l.GetValue() == "" })
	names := make(map[string]bool, len(metric.Label))
	var own *dto.LabelPair
	for _, l := range metric.Label {
		names[l.GetName()] = true
		if l.GetName() == roleLabel {
			own = l
		}
	}
	if own != nil {
		name := exported + roleLabel
		for names[name] {
			name = exported + name
		}
		own.Name = &name
	}
	metric.Label = append(metric.Label, &dto.LabelPair{Name: proto.String(roleLabel), Value: &role})
	slices.SortFunc(metric.Label, func(a, b *dto.LabelPair) int { return cmp.Compare(a.GetName(), b.GetName()) })
}

// keyOf tells the series of a family apart. No label holds the byte that is not UTF-8.
func keyOf(metric *dto.Metric) string {
	var key strings.Builder
	for _, l := range metric.Label {
		key.WriteString(l.GetName())
		key.WriteByte(0xFF)
		key.WriteString(l.GetValue())
		key.WriteByte(0xFF)
	}
	return key.String()
}

// sorted returns all families by name, each with its series in the order of their labels.
func (m *merge) sorted() []*dto.MetricFamily {
	families := make([]*dto.MetricFamily, 0, len(m.families))
	for _, name := range slices.Sorted(maps.Keys(m.families)) {
		family := m.families[name]
		slices.SortStableFunc(family.Metric, compareSeries)
		families = append(families, family)
	}
	return families
}

func compareSeries(a, b *dto.Metric) int {
	return slices.CompareFunc(a.Label, b.Label, func(x, y *dto.LabelPair) int {
		return cmp.Or(cmp.Compare(x.GetName(), y.GetName()), cmp.Compare(x.GetValue(), y.GetValue()))
	})
}
