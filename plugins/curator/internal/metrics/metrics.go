package metrics

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// Metrics is what is counted. It is safe for concurrent use.
type Metrics struct {
	registry   *prometheus.Registry
	calls      *prometheus.CounterVec
	seconds    *prometheus.HistogramVec
	streams    *prometheus.GaugeVec
	entries    *prometheus.CounterVec
	suppressed prometheus.Counter
	failed     prometheus.Counter
	sessions   *prometheus.CounterVec
	caEnds     prometheus.Gauge
	svidEnds   prometheus.Gauge
	open       *prometheus.GaugeVec
	goodAt     prometheus.Gauge
	goodHere   prometheus.Gauge
	badHere    prometheus.Counter
}

// Kind is whose a connection is, as far as that is known.
type Kind string

// The kinds. Stranger is who was not let in, or not yet: also a role, whose SVID opens nothing here.
const (
	Stranger Kind = "stranger"
	Node     Kind = "node"
	Operator Kind = "operator"
	Newcomer Kind = "newcomer"
)

// Kinds is all of them.
var Kinds = []Kind{Stranger, Node, Operator, Newcomer}

// New returns Metrics that have counted nothing.
func New() *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "curator_calls_total", Help: "Calls of the cluster API that have ended, by RPC and gRPC code.",
		}, []string{"rpc", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "curator_call_seconds", Help: "How long calls of the cluster API took, but for streams, by RPC.",
			// From a read of a store in memory to the time after which it is given up.
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"rpc"}),
		streams: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "curator_watches", Help: "Streams of the cluster API that are open, by RPC.",
		}, []string{"rpc"}),
		entries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "curator_audit_entries_total", Help: "Entries that this curator has written to the audit log, by kind: change, call, or unproven for callers who proved nothing.",
		}, []string{"kind"}),
		suppressed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "curator_audit_suppressed_total", Help: "Calls that have no entry of their own in the audit log, since there are so many of their caller, and are counted in the next one.",
		}),
		failed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "curator_audit_failures_total", Help: "Writes of the audit log that failed.",
		}),
		sessions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "curator_session_certificates_total", Help: "Certificates of sessions that were issued, by the role of the operator.",
		}, []string{"operator_role"}),
		caEnds: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "curator_ca_not_after_seconds", Help: "When the certificate of the cluster CA ends, in seconds of the Unix epoch.",
		}),
		svidEnds: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "curator_svid_not_after_seconds", Help: "When the certificate that this curator serves with ends, in seconds of the Unix epoch.",
		}),
		open: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "curator_connections", Help: "Connections to the cluster API that are open, by the kind of the caller: node, operator (the owner and viewers among them), newcomer, or stranger.",
		}, []string{"caller"}),
		goodAt: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "curator_snapshot_good_seconds", Help: "When the newest good scheduled snapshot of the cluster was asked for, in seconds of the Unix epoch; 0: there is none.",
		}),
		goodHere: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "curator_snapshots", Help: "Good scheduled snapshots on the disk of this node.",
		}),
		badHere: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "curator_snapshot_failures_total", Help: "Scheduled snapshots that this node was to take and that failed.",
		}),
	}
	m.registry.MustRegister(m.calls, m.seconds, m.streams, m.entries, m.suppressed, m.failed, m.sessions, m.caEnds, m.svidEnds, m.open, m.goodAt, m.goodHere, m.badHere)
	for _, kind := range Kinds {
		m.open.WithLabelValues(string(kind))
	}
	for _, shelf := range store.AuditShelves {
		m.entries.WithLabelValues(string(shelf))
	}
	return m
}

// Write writes all of them in the text format of Prometheus (0.0.4).
func (m *Metrics) Write(_ context.Context, to io.Writer) error {
	families, err := m.registry.Gather()
	if err != nil {
		return fmt.Errorf("gather the metrics: %w", err)
	}
	encoder := expfmt.NewEncoder(to, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, family := range families {
		if err := encoder.Encode(family); err != nil {
			return fmt.Errorf("write the metrics: %w", err)
		}
	}
	return nil
}

// Unary is the interceptor that counts unary RPCs. It is to be outside of all others.
func (m *Metrics) Unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	began := time.Now()
	response, err := handler(ctx, request)
	rpc := path.Base(info.FullMethod)
	m.seconds.WithLabelValues(rpc).Observe(time.Since(began).Seconds())
	m.calls.WithLabelValues(rpc, status.Code(err).String()).Inc()
	return response, err
}

// Stream is the interceptor that counts streams.
func (m *Metrics) Stream(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	rpc := path.Base(info.FullMethod)
	open := m.streams.WithLabelValues(rpc)
	open.Inc()
	defer open.Dec()
	err := handler(service, stream)
	m.calls.WithLabelValues(rpc, status.Code(err).String()).Inc()
	return err
}

// Audited counts entries of the audit log.
func (m *Metrics) Audited(shelf store.AuditShelf, entries int) {
	m.entries.WithLabelValues(string(shelf)).Add(float64(entries))
}

// AuditSuppressed counts a call that has no entry of its own.
func (m *Metrics) AuditSuppressed() { m.suppressed.Inc() }

// AuditFailed counts a write of the audit log that failed.
func (m *Metrics) AuditFailed() { m.failed.Inc() }

// LoggedIn counts a session certificate.
func (m *Metrics) LoggedIn(role clusterv1.OperatorRole) {
	m.sessions.WithLabelValues(strings.ToLower(strings.TrimPrefix(role.String(), "OPERATOR_ROLE_"))).Inc()
}

// Connections counts connections of a kind that were opened; fewer than none: that are not open any more, or of another kind now.
func (m *Metrics) Connections(kind Kind, opened int) {
	m.open.WithLabelValues(string(kind)).Add(float64(opened))
}

// SVID takes note of the certificate with which this curator serves, DER.
func (m *Metrics) SVID(certificate []byte) {
	if leaf, err := x509.ParseCertificate(certificate); err == nil {
		m.svidEnds.Set(float64(leaf.NotAfter.Unix()))
	}
}

// CA takes note of the certificates of the cluster CA, DER, the signing one first.
func (m *Metrics) CA(certificates [][]byte) {
	if len(certificates) == 0 {
		return
	}
	if signing, err := x509.ParseCertificate(certificates[0]); err == nil {
		m.caEnds.Set(float64(signing.NotAfter.Unix()))
	}
}

// Snapshots takes note of when the newest good scheduled snapshot of the cluster was asked for, and of how many this node has. The zero time: there is none.
func (m *Metrics) Snapshots(newest time.Time, kept int) {
	m.goodHere.Set(float64(kept))
	if newest.IsZero() {
		m.goodAt.Set(0)
		return
	}
	m.goodAt.Set(float64(newest.Unix()))
}

// SnapshotFailed counts a scheduled snapshot that failed on this node.
func (m *Metrics) SnapshotFailed() { m.badHere.Inc() }
