package metrics

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/roles"
	"github.com/reeveproject/reeve/proto/limits"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

const (
	// scrapeTimeout is how long the roles may take, all at the same time: less than anybody waits who scrapes.
	scrapeTimeout = time.Second
	// maxTexts bounds what all roles together may say, in bytes, so that the whole fits into a message of the node's API (limits.Message), the labels that
	// it is given included.
	maxTexts = limits.Message / 2
	// maxAllSamples bounds the samples of all roles together for the same reason, and for the sake of memory.
	maxAllSamples = 3 * maxSamples
)

// answer is what a role said.
type answer struct {
	role string
	// trusted is whether the node relies on the role: it provides what the core itself looks for.
	trusted bool
	text    []byte
	took    time.Duration
	err     error
}

// scrape asks all roles that run, and adds what they say.
func (m *Metrics) scrape(ctx context.Context, all *merge) {
	answers := m.ask(ctx)
	m.scraped.begin()
	texts, samples := 0, 0
	for _, a := range answers {
		shown, err := 0, a.err
		if err == nil {
			shown, err = m.admit(all, a, &texts, &samples)
		}
		if why := (*rejected)(nil); errors.As(err, &why) {
			m.scraped.reject(a.role, why.reason)
		}
		if err != nil {
			m.log.Debug("a role's metrics are missing", "role", a.role, "error", err)
		}
		m.scraped.note(a, err == nil, shown)
	}
}

// admit adds what one role said, if there is room for it beside what texts and samples say has been added before.
func (m *Metrics) admit(all *merge, a answer, texts, samples *int) (series int, err error) {
	families, count, err := read(a.text)
	if err != nil {
		return 0, err
	}
	if *texts+len(a.text) > maxTexts || *samples+count > maxAllSamples {
		return 0, &rejected{noRoom, errors.New("the roles of this node have too many metrics together")}
	}
	*texts += len(a.text)
	*samples += count
	return all.role(a.role, families), nil
}

// ask asks all roles at the same time. The answers are in the order in which they are added: what two roles call the same and mean differently is
// the first one's, so those that the node relies on come first, and the others by name.
func (m *Metrics) ask(ctx context.Context) []answer {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, scrapeTimeout)
	defer cancel()
	capabilities := m.now.capabilities
	var answers []answer
	var asking sync.WaitGroup
	var mu sync.Mutex
	for _, instance := range m.now.instances {
		role := instance.Status.GetRole()
		provider, ok := capabilities[role]
		if !ok || provider.Conn == nil {
			continue
		}
		a := answer{role: role, trusted: provides(capabilities, role, roles.CapabilityConsensus) || provides(capabilities, role, roles.CapabilityCluster)}
		asking.Go(func() {
			a.text, a.err = fetch(ctx, provider.Conn)
			a.took = time.Since(began)
			mu.Lock()
			defer mu.Unlock()
			answers = append(answers, a)
		})
	}
	asking.Wait()
	slices.SortFunc(answers, func(a, b answer) int {
		return cmp.Or(-cmp.Compare(truth(a.trusted), truth(b.trusted)), cmp.Compare(a.role, b.role))
	})
	return answers
}

func provides(capabilities roles.Capabilities, role, capability string) bool {
	provider, ok := capabilities[capability]
	return ok && provider.Role == role
}

// fetch asks one role. One that has no metrics has said so, which is well.
func fetch(ctx context.Context, conn grpc.ClientConnInterface) ([]byte, error) {
	// Somewhat more than the text may have, for what a message adds to it.
	response, err := rolev1.NewRoleServiceClient(conn).GetMetrics(ctx, &rolev1.GetMetricsRequest{}, grpc.MaxCallRecvMsgSize(limits.Metrics+1024))
	switch status.Code(err) {
	case codes.OK:
		return response.GetText(), nil
	case codes.Unimplemented:
		return nil, nil
	case codes.ResourceExhausted:
		return nil, &rejected{tooLarge, err}
	}
	return nil, fmt.Errorf("ask it: %w", err)
}

// scraped is what is known of the roles' own metrics: what was left out, and what the last scrape found.
type scraped struct {
	rejections       *prometheus.CounterVec
	up, took, series *prometheus.GaugeVec
}

func newScraped() scraped {
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: reserved + name, Help: help}, []string{"role"})
	}
	return scraped{
		rejections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: reserved + "role_metrics_rejected_total",
			Help: "What was left out of the metrics of a role, by reason: all of them, a family or a series at a time.",
		}, []string{"role", "reason"}),
		up:     gauge("role_scrape_up", "Whether the role answered when it was last asked for its metrics, with metrics that could be read or with none."),
		took:   gauge("role_scrape_duration_seconds", "How long the role took to answer when it was last asked for its metrics."),
		series: gauge("role_scrape_series", "How many series of the role's own are shown."),
	}
}

func (s scraped) reject(role string, why reason) {
	s.rejections.WithLabelValues(role, string(why)).Inc()
}

// begin forgets what the scrape before has found.
func (s scraped) begin() {
	s.up.Reset()
	s.took.Reset()
	s.series.Reset()
}

func (s scraped) note(a answer, up bool, series int) {
	s.up.WithLabelValues(a.role).Set(truth(up))
	s.took.WithLabelValues(a.role).Set(a.took.Seconds())
	s.series.WithLabelValues(a.role).Set(float64(series))
}
