package metrics

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/reeveproject/reeve/core/identity"
	"github.com/reeveproject/reeve/core/listening"
	"github.com/reeveproject/reeve/core/roles"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// Config is what the metrics are made of. What is not said to be optional is required.
type Config struct {
	// Log takes the log; nil: none is written.
	Log hclog.Logger
	// Listen is host:port for plain HTTP; port 0: a free one; empty: the metrics are had by Text only.
	Listen string
	// Status is the state of the node.
	Status *event.Value[*nodev1.Status]
	// Identity is who the node is; nil: when its SVID ends is not shown.
	Identity *event.Value[*identity.Identity]
	// Budget is the crash budget of a role, as the reconciler has it; nil: it is not shown.
	Budget func(role string) roles.Budget
}

// Metrics is the metrics of the node.
type Metrics struct {
	log      hclog.Logger
	listen   string
	listener *listening.Listener // nil: not served
	// address is where HTTP is served, and problem why it is not.
	address, problem event.Value[string]

	// own has the node's own metrics, and scrapes what is known of the roles' only when they have been asked.
	own, scrapes *prometheus.Registry
	told         told
	scraped      scraped
	// sources is where the roles are found; nil before Run.
	sources atomic.Pointer[sources]
	// turn lets one gathering run at a time: it holds one. now is what the gathering that has it shows of the roles.
	turn chan struct{}
	now  present

	mu      sync.Mutex
	servers map[string]*measured
}

// sources is what Run was given.
type sources struct {
	instances    *event.Value[roles.Instances]
	capabilities *event.Value[roles.Capabilities]
}

// present is what runs at one moment.
type present struct {
	instances    roles.Instances
	capabilities roles.Capabilities
}

// New listens, if it is to; nothing is answered before Run. It fails if the port cannot be had.
func New(config Config) (*Metrics, error) {
	m := &Metrics{
		log: config.Log, listen: config.Listen, own: prometheus.NewRegistry(), scrapes: prometheus.NewRegistry(), told: newTold(), scraped: newScraped(),
		turn: make(chan struct{}, 1), servers: make(map[string]*measured),
	}
	if m.log == nil {
		m.log = hclog.NewNullLogger()
	}
	err := register(m.own,
		// Goroutines, threads, pauses of the collector and its settings. The two dozen series on the allocator are for whoever has a profile.
		collectors.NewGoCollector(collectors.WithGoCollectorMemStatsMetricsDisabled()),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		nodeCollector{config.Status, config.Identity},
		&roleCollector{now: &m.now, budget: config.Budget},
		m.told.events, m.told.launches, m.told.memory,
	)
	if err == nil {
		err = register(m.scrapes, m.scraped.rejections, m.scraped.up, m.scraped.took, m.scraped.series)
	}
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	if config.Listen != "" {
		// That somebody else has the address, or that the machine does not have it yet, is no reason for a node not to start.
		if m.listener, err = listening.Listen(config.Listen, true, m.listens); err != nil {
			return nil, m.unserved(err)
		}
	}
	return m, nil
}

func (m *Metrics) unserved(err error) error {
	return fmt.Errorf("metrics: the node's metrics cannot be served on %s (parameter metrics.listen): %w", m.listen, err)
}

// listens notes where HTTP is served, or why it is not.
func (m *Metrics) listens(address string, problem error) {
	m.address.Set(address)
	text := ""
	if problem != nil {
		text = strings.TrimPrefix(m.unserved(problem).Error(), "metrics: ") + ": " + listening.Advice(problem) + ", or change the parameter; it is tried again every second"
	}
	former, _ := m.problem.Get()
	m.problem.Set(text)
	switch {
	case problem == nil:
		// With port 0 nothing else says which one it is.
		m.log.Info("serving the node's metrics", "address", address)
	case text != former: // nobody is told the same every second
		m.log.Error("the node's metrics are not served; it is tried again", "error", problem)
	}
}

// Problem is why HTTP is not served although it is to be, and what to do; empty: it is served, or is not to be.
func (m *Metrics) Problem() *event.Value[string] { return &m.problem }

func register(with *prometheus.Registry, all ...prometheus.Collector) error {
	var problems []error
	for _, one := range all {
		problems = append(problems, with.Register(one))
	}
	return errors.Join(problems...)
}

// Address is the host:port that HTTP is served on; empty if it is not.
func (m *Metrics) Address() string {
	address, _ := m.address.Get()
	return address
}

// Close gives up what New made, for metrics whose Run is never called.
func (m *Metrics) Close() error {
	if m.listener == nil {
		return nil
	}
	if err := m.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}

// Run shows, from now on, the roles too, and serves HTTP until the context ends; then it returns nil. Where it cannot listen it says so in the log and by Problem, and tries
// again. It may be called once. It is here and not in Config that it is told where the roles are, since the reconciler is itself told of Recorder and Launched when it is made.
func (m *Metrics) Run(ctx context.Context, instances *event.Value[roles.Instances], capabilities *event.Value[roles.Capabilities]) error {
	m.sources.Store(&sources{instances: instances, capabilities: capabilities})
	defer m.sources.Store(nil)
	if m.listener == nil {
		<-ctx.Done()
		return nil
	}
	m.serve(ctx)
	m.address.Set("")
	return nil
}

// Text is the metrics in the text format of Prometheus, version 0.0.4: those of the node always, those of the roles as far as they answer. It takes a
// second, if a role does not answer, and fails only if the context ends before its turn comes: one asks at a time.
func (m *Metrics) Text(ctx context.Context) ([]byte, error) {
	families, err := m.gather(ctx)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	encoder := expfmt.NewEncoder(&text, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, family := range families {
		if err := encoder.Encode(family); err != nil {
			return nil, fmt.Errorf("metrics: write %s: %w", family.GetName(), err)
		}
	}
	return text.Bytes(), nil
}

// gather returns all that there is, sorted by name.
func (m *Metrics) gather(ctx context.Context) ([]*dto.MetricFamily, error) {
	select {
	case m.turn <- struct{}{}:
		defer func() { <-m.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("metrics: too many callers ask for the metrics at the same time: try again: %w", ctx.Err())
	}
	m.now = present{}
	if from := m.sources.Load(); from != nil {
		m.now.instances, _ = from.instances.Get()
		m.now.capabilities, _ = from.capabilities.Get()
	}
	all := newMerge(m.scraped.reject)
	// The node's own come first: what is in the way of them is left out.
	m.add(all, m.own)
	m.scrape(ctx, all)
	m.add(all, m.scrapes)
	return all.sorted(), nil
}

// add puts the node's own metrics of a registry beside the rest. A registry that finds a fault with some of them still returns the others.
func (m *Metrics) add(all *merge, registry *prometheus.Registry) {
	families, err := registry.Gather()
	if err != nil {
		m.log.Error("some of the node's own metrics are missing", "error", err)
	}
	for _, family := range families {
		all.own(family)
	}
}
