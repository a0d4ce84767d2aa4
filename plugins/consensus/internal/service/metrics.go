package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"
)

// MetricsSocket is the name, in the instance's runtime directory, of the Unix socket on which etcd's own metrics are served over HTTP at /metrics, to the
// role's own user and root.
const MetricsSocket = "metrics.sock"

// gatherer gathers the metrics of etcd, which keeps them in the library's default registry, of this process, and of what the users have in the store.
func (s *Service) gatherer() prometheus.Gatherer {
	users := prometheus.NewPedanticRegistry()
	users.MustRegister(usersOf{s})
	return prometheus.Gatherers{prometheus.DefaultGatherer, users}
}

// WriteMetrics writes the role's metrics.
func (s *Service) WriteMetrics(_ context.Context, to io.Writer) error {
	families, err := s.gatherer().Gather()
	if err != nil {
		return fmt.Errorf("consensus: gather etcd's metrics: %w", err)
	}
	encoder := expfmt.NewEncoder(to, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, family := range families {
		if err := encoder.Encode(family); err != nil {
			return fmt.Errorf("consensus: write etcd's metrics: %w", err)
		}
	}
	return nil
}

// metricsTimeout is how long a request on the socket may take: etcd's metrics are gathered in a few milliseconds.
const metricsTimeout = 10 * time.Second

// metricsServer serves the socket.
type metricsServer struct {
	log     hclog.Logger
	server  *http.Server
	serving sync.WaitGroup
}

// serveMetrics serves until close. Without the socket the store is still a store: what goes wrong is in the log.
func serveMetrics(log hclog.Logger, directory string, metrics prometheus.Gatherer) *metricsServer {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{DisableCompression: true, MaxRequestsInFlight: 1}))
	m := &metricsServer{log: log, server: &http.Server{Handler: mux, ReadTimeout: metricsTimeout, WriteTimeout: metricsTimeout, ErrorLog: log.StandardLogger(nil)}}
	listener, err := listenPrivate(filepath.Join(directory, MetricsSocket))
	if err != nil {
		log.Warn("etcd's metrics are not served on a socket of their own", "error", err)
		return m
	}
	m.serving.Go(func() {
		if err := m.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Warn("etcd's metrics are no longer served on their socket", "error", err)
		}
	})
	return m
}

// close ends the serving, and returns when it has.
func (m *metricsServer) close() {
	if err := m.server.Close(); err != nil {
		m.log.Warn("closing the socket of etcd's metrics", "error", err)
	}
	m.serving.Wait()
}

// listenPrivate listens on a socket that only this user can connect to. Until its mode is set, the directory is what keeps others out.
func listenPrivate(path string) (net.Listener, error) {
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}
