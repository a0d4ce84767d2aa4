package metrics

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/reeveproject/reeve/core/roles"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// told is what happened, as others told it.
type told struct {
	events   *prometheus.CounterVec
	launches *prometheus.HistogramVec
	memory   *prometheus.CounterVec
}

// launchBuckets are around what a launch takes: a tenth of a second for most roles, a second for an election of the store, and half a minute on a
// machine in trouble.
var launchBuckets = []float64{0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}

func newTold() told {
	return told{
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: reserved + "events_total", Help: "Events of the node, by type, severity and, where they are about one, role.",
		}, []string{"type", "severity", "role"}),
		launches: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: reserved + "role_launch_duration_seconds", Help: "Time from the beginning of a launch until the role was Ready for the first time.",
			Buckets: launchBuckets,
		}, []string{"role"}),
		memory: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: reserved + "role_out_of_memory_total", Help: "How often the kernel ended the role since it used more memory than it may, since the core started.",
		}, []string{"role"}),
	}
}

// Recorder returns a recorder that counts the events that next is given; nil: they are only counted.
func (m *Metrics) Recorder(next roles.Recorder) roles.Recorder {
	return counting{told: m.told, next: next}
}

type counting struct {
	told told
	next roles.Recorder
}

// Record implements roles.Recorder.
func (c counting) Record(event *nodev1.Event) {
	severity := strings.ToLower(strings.TrimPrefix(event.GetSeverity().String(), "SEVERITY_"))
	// An event may hold what came from outside; a label is UTF-8.
	c.told.events.WithLabelValues(valid(event.GetType()), severity, valid(event.GetRole())).Inc()
	if event.GetDetails()["out_of_memory"] == "true" && event.GetType() != "RoleFailed" { // which follows another one about the same
		c.told.memory.WithLabelValues(valid(event.GetRole())).Inc()
	}
	if c.next != nil {
		c.next.Record(event)
	}
}

func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// Launched takes note of how long the launch of a role took.
func (m *Metrics) Launched(role string, took time.Duration) {
	m.told.launches.WithLabelValues(role).Observe(took.Seconds())
}
