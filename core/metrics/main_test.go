package metrics_test

import (
	"context"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/metrics"
	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/roles"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/event"
	"github.com/reeveproject/reeve/sdk/leaktest"
)

// asProcesses has the test's executable be the processes of a role in place of a test.
const asProcesses = "REEVE_TEST_PROCESSES"

func TestMain(m *testing.M) {
	switch os.Getenv(asProcesses) {
	case "leader":
		leader()
	case "child":
		wait()
	default:
		leaktest.VerifyTestMain(m)
	}
}

// leader starts a child, says so, and ends with its standard input.
func leader() {
	child := exec.Command("/proc/self/exe")
	child.Env = append(os.Environ(), asProcesses+"=child")
	child.Stdin = os.Stdin
	child.Stdout = os.Stdout
	if err := child.Start(); err != nil {
		panic(err)
	}
	wait()
	_ = child.Wait()
}

func wait() {
	_, _ = os.Stdout.WriteString("up\n")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// bound is how long a test waits for what should happen at once.
const bound = 5 * time.Minute

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	t.Cleanup(cancel)
	return ctx
}

// speaker is the plugin connection of a role that answers GetMetrics.
type speaker func(ctx context.Context) (text string, err error)

// Invoke implements grpc.ClientConnInterface.
func (s speaker) Invoke(ctx context.Context, method string, _, reply any, _ ...grpc.CallOption) error {
	if method != rolev1.RoleService_GetMetrics_FullMethodName {
		return status.Error(codes.Unimplemented, method)
	}
	text, err := s(ctx)
	reply.(*rolev1.GetMetricsResponse).Text = []byte(text)
	return err
}

// NewStream implements grpc.ClientConnInterface.
func (speaker) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, status.Error(codes.Unimplemented, "no streams")
}

func says(text string) speaker {
	return func(context.Context) (string, error) { return text, nil }
}

// node is metrics and what they are made of.
type node struct {
	*metrics.Metrics
	status       event.Value[*nodev1.Status]
	instances    event.Value[roles.Instances]
	capabilities event.Value[roles.Capabilities]
	stop         func()
}

func start(t testing.TB, config metrics.Config) *node {
	t.Helper()
	n := &node{}
	config.Status = &n.status
	var err error
	if n.Metrics, err = metrics.New(config); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := n.Run(ctx, &n.instances, &n.capabilities); err != nil {
			t.Error(err)
		}
	})
	n.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	t.Cleanup(n.stop)
	return n
}

// run has roles run that speak. What is set before Run is set for Run too.
func (n *node) run(speakers map[string]grpc.ClientConnInterface) {
	capabilities := make(roles.Capabilities)
	var instances roles.Instances
	for role, conn := range speakers {
		capabilities[role] = roles.Provider{Role: role, Conn: conn}
		if role == "store" {
			capabilities[roles.CapabilityConsensus] = capabilities[role]
		}
		instances = append(instances, roles.Instance{
			Status: &clusterv1.InstanceStatus{Role: role, State: hostv1.InstanceState_INSTANCE_STATE_READY},
		})
	}
	n.capabilities.Set(capabilities)
	n.instances.Set(instances)
}

// speaking is a node on which roles run that say this.
func speaking(t testing.TB, texts map[string]string) *node {
	t.Helper()
	n := start(t, metrics.Config{})
	speakers := make(map[string]grpc.ClientConnInterface)
	for role, text := range texts {
		speakers[role] = says(text)
	}
	n.run(speakers)
	return n
}

// scrape is the text of a scrape, which is checked.
type scrape struct {
	t    testing.TB
	text string
}

// scrape asks for the metrics.

func (n *node) scrape(t testing.TB) scrape {
	t.Helper()
	text, err := n.Text(within(t))
	if err != nil {
		t.Fatal(err)
	}
	check(t, string(text))
	return scrape{t, string(text)}
}

// until scrapes until a line is there: Run has begun by then.
func (n *node) until(t testing.TB, line string) scrape {
	t.Helper()
	for ctx := within(t); ctx.Err() == nil; {
		if s := n.scrape(t); s.has(line) {
			return s
		}
	}
	t.Fatalf("%s never appeared", line)
	return scrape{}
}

func (s scrape) has(line string) bool { return strings.Contains("\n"+s.text, "\n"+line+"\n") }

// want fails the test for every line that is not in the scrape.
func (s scrape) want(lines ...string) {
	s.t.Helper()
	for _, line := range lines {
		if !s.has(line) {
			s.t.Errorf("missing: %s", line)
		}
	}
	if s.t.Failed() {
		s.t.Log(s.text)
	}
}

// value is that of the one series that begins so.
func (s scrape) value(series string) float64 {
	s.t.Helper()
	for line := range strings.Lines(s.text) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			value, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			if err != nil {
				s.t.Fatal(err)
			}
			return value
		}
	}
	s.t.Fatalf("no series %s", series)
	return 0
}

// check fails the test if a text is not what a scraper takes: it must be read again, with no series twice and each family in one place, in order.
func check(t testing.TB, text string) {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	_, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("the text is not valid: %v\n%s", err, text)
	}
	seen := make(map[string]bool)
	last := ""
	for line := range strings.Lines(text) {
		if name, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, _, _ = strings.Cut(name, " ")
			if name <= last {
				t.Fatalf("%s comes after %s", name, last)
			}
			last = name
		}
		if line[0] == '#' {
			continue
		}
		series := line[:strings.LastIndexByte(line, ' ')]
		if seen[series] {
			t.Fatalf("%s is there twice", series)
		}
		if seen[series] = true; !strings.HasPrefix(series, last) {
			t.Fatalf("%s is among the series of %s", series, last)
		}
	}
}

func process(command *exec.Cmd, started uint64) *plugin.Process {
	return &plugin.Process{PID: command.Process.Pid, Start: started}
}
