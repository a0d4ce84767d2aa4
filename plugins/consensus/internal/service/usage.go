package service

import (
	"github.com/prometheus/client_golang/prometheus"

	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// usersOf shows what the ConsensusUsers have in the store, as its local member counts it. A quota that there is not has no series.
type usersOf struct{ service *Service }

func userMetric(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("reeve_consensus_user_"+name, help, []string{"consensus_user"}, nil)
}

// userMetrics are the metrics of a user, with how they are read.
var userMetrics = []struct {
	description *prometheus.Desc
	kind        prometheus.ValueType
	value       func(*consensusv1.UserUsage) float64
	// optional says that zero means that there is none.
	optional bool
}{
	{userMetric("bytes", "Bytes of the keys and values that a ConsensusUser has in the store."), prometheus.GaugeValue,
		func(u *consensusv1.UserUsage) float64 { return float64(u.GetBytes()) }, false},
	{userMetric("bytes_quota", "Bytes of keys and values that a ConsensusUser may have."), prometheus.GaugeValue,
		func(u *consensusv1.UserUsage) float64 { return float64(u.GetBytesQuota()) }, true},
	{userMetric("leases", "Leases that a ConsensusUser has in the store."), prometheus.GaugeValue,
		func(u *consensusv1.UserUsage) float64 { return float64(u.GetLeases()) }, false},
	{userMetric("leases_quota", "Leases that a ConsensusUser may have."), prometheus.GaugeValue,
		func(u *consensusv1.UserUsage) float64 { return float64(u.GetLeasesQuota()) }, true},
	{userMetric("refused_total", "Requests of a ConsensusUser that the local member refused because it had used up what it may."), prometheus.CounterValue,
		func(u *consensusv1.UserUsage) float64 { return float64(u.GetRefused()) }, false},
}

// Describe is a prometheus.Collector's.
func (c usersOf) Describe(to chan<- *prometheus.Desc) {
	for _, metric := range userMetrics {
		to <- metric.description
	}
}

// Collect is a prometheus.Collector's.
func (c usersOf) Collect(to chan<- prometheus.Metric) {
	r, ok := c.service.running.Get()
	if !ok {
		return
	}
	formed := r.store.Load()
	if formed == nil {
		return
	}
	for _, user := range formed.UsageNow() {
		for _, metric := range userMetrics {
			if value := metric.value(user); value != 0 || !metric.optional {
				to <- prometheus.MustNewConstMetric(metric.description, metric.kind, value, user.GetConsensusUser())
			}
		}
	}
}
