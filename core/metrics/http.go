package metrics

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"golang.org/x/net/netutil"
)

// Whoever reaches the port may ask: what that can cost is bounded.
const (
	// maxConnections and maxRequests are more than the two or three that scrape a node have.
	maxConnections = 64
	maxRequests    = 4
	// maxHeader is enough for what a browser sends.
	maxHeader = 8 << 10
	// requestTimeout is how long a request may take to come in, and writeTimeout until it is answered and read: every one before it in turn may take
	// scrapeTimeout.
	requestTimeout = 5 * time.Second
	writeTimeout   = 30 * time.Second
	// idleTimeout keeps the connection of those that scrape once a minute.
	idleTimeout = 2 * time.Minute
	// stopGrace is how long answers may take when the core stops.
	stopGrace = 2 * time.Second
)

// serve answers HTTP until the context ends.
func (m *Metrics) serve(ctx context.Context) {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", m.handler())
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: requestTimeout, ReadTimeout: requestTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader, ErrorLog: m.log.StandardLogger(nil), BaseContext: func(net.Listener) context.Context { return ctx },
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(netutil.LimitListener(m.listener, maxConnections)) // that it was shut down: the listener fails only when it is closed
	}()
	<-ctx.Done()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
	defer cancel()
	if server.Shutdown(grace) != nil {
		_ = server.Close() // its error only says that a connection was closed already
	}
	<-ended
}

// handler answers in the format that the caller asks for.
func (m *Metrics) handler() http.Handler {
	requests := make(chan struct{}, maxRequests)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case requests <- struct{}{}:
			defer func() { <-requests }()
		default:
			http.Error(w, "too many ask for the metrics at the same time; try again", http.StatusServiceUnavailable)
			return
		}
		gathered := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return m.gather(r.Context()) })
		promhttp.HandlerFor(gathered, promhttp.HandlerOpts{
			ErrorLog: printer{m}, EnableOpenMetrics: true,
			// Compressing costs a megabyte of memory for whoever asks, and the one who scrapes is near.
			DisableCompression: true,
		}).ServeHTTP(w, r)
	})
}

// printer takes the errors of the handler into the log.
type printer struct{ m *Metrics }

// Println implements promhttp.Logger.
func (p printer) Println(what ...any) { p.m.log.Debug("a scrape failed", "error", fmt.Sprint(what...)) }
