package metrics

import (
	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
)

// rpcBuckets go from a call that is answered from memory to one that waits for the cluster.
var rpcBuckets = []float64{0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10}

// measured is the interceptors of one of the node's servers.
type measured struct {
	unary  grpc.UnaryServerInterceptor
	stream grpc.StreamServerInterceptor
}

// Interceptors returns what counts and times the calls of one of the node's gRPC servers, which its metrics name by the label "server". They belong
// outermost, so that refused calls are counted. The same server may ask more than once.
func (m *Metrics) Interceptors(server string) (grpc.UnaryServerInterceptor, grpc.StreamServerInterceptor) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known := m.servers[server]; known != nil {
		return known.unary, known.stream
	}
	labels := prometheus.Labels{"server": server}
	calls := grpcprom.NewServerMetrics(
		grpcprom.WithServerCounterOptions(grpcprom.WithNamespace("reeve"), grpcprom.WithConstLabels(labels)),
		grpcprom.WithServerHandlingTimeHistogram(
			grpcprom.WithHistogramNamespace("reeve"), grpcprom.WithHistogramConstLabels(labels), grpcprom.WithHistogramBuckets(rpcBuckets),
		),
	)
	if err := m.own.Register(calls); err != nil { // only ever a fault of this package: the label tells the servers apart
		m.log.Error("the calls of a server are not measured", "server", server, "error", err)
	}
	made := &measured{unary: calls.UnaryServerInterceptor(), stream: calls.StreamServerInterceptor()}
	m.servers[server] = made
	return made.unary, made.stream
}
