package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/soak"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

const (
	// writesBetween is how many acknowledged writes lie between two kills at least.
	writesBetween = 100
	// writers is how many writes are under way at a time.
	writers = 8
)

// seed is where the random choices of a test come from. The gate makes the same ones each time; soak makes others, and prints how to have them again.
func seed(t *testing.T) *rand.Rand {
	t.Helper()
	number := uint64(1)
	if text := os.Getenv("REEVE_TEST_SEED"); text != "" {
		var err error
		if number, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("REEVE_TEST_SEED=%d", number)
	return rand.New(rand.NewPCG(number, number))
}

// patientParameters let roles fail as often as a test wants.
func patientParameters(p *nodev1.Parameters) {
	failures := uint32(1000)
	p.Supervision = &nodev1.Supervision{CrashBudget: &nodev1.CrashBudget{Failures: &failures}}
}

// load writes to the store through a role, and remembers what was acknowledged.
type load struct {
	stop context.CancelFunc
	done sync.WaitGroup

	mu    sync.Mutex
	where string // the role's URL
	acked map[string]string
	more  chan struct{} // closed and replaced with every acknowledged write
}

func startLoad(t *testing.T, where string) *load {
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{stop: cancel, where: where, acked: make(map[string]string), more: make(chan struct{})}
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: writers}}
	for w := range writers {
		l.done.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				key, value := fmt.Sprintf("w%d/%06d", w, n), fmt.Sprintf("value %d of writer %d", n, w)
				l.write(ctx, client, key, value)
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		l.done.Wait()
		client.CloseIdleConnections()
	})
	return l
}

// write writes one key until it is acknowledged.
func (l *load) write(ctx context.Context, client *http.Client, key, value string) {
	for ctx.Err() == nil {
		l.mu.Lock()
		where := l.where
		l.mu.Unlock()
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, where+"/put?"+url.Values{"key": {key}, "value": {value}}.Encode(), nil)
		if err != nil {
			panic(err) // the URL is the test's own
		}
		response, err := client.Do(request)
		if err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				l.mu.Lock()
				l.acked[key] = value
				close(l.more)
				l.more = make(chan struct{})
				l.mu.Unlock()
				return
			}
		}
		// The role is away: asking it without a pause would only take the processor from its start.
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (l *load) moveTo(where string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.where = where
}

func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked)
}

// await waits until so many writes are acknowledged, following the role to where it is meanwhile.
func (l *load) await(t *testing.T, c *devcluster.Cluster, want int) {
	t.Helper()
	deadline := time.Now().Add(2 * patience)
	for time.Now().Before(deadline) {
		l.mu.Lock()
		count, more := len(l.acked), l.more
		l.mu.Unlock()
		if count >= want {
			return
		}
		select {
		case <-more:
		case <-time.After(200 * time.Millisecond):
			// A node that is starting does not answer; the next look will tell.
			if result := c.Reeve(t, "status", "-o", "json"); result.Code == 0 {
				if where := endpointIn(result.Stdout, "writer"); where != "" {
					l.moveTo(where)
				}
			}
		}
	}
	t.Fatalf("the run is not valid: %d writes are acknowledged, want %d; the status is %s", l.count(), want, c.Reeve(t, "status").Stdout)
}

// endpointIn returns where the role in a status document serves; empty if it does not.
func endpointIn(document, role string) string {
	status, err := devcluster.ParseStatus(document)
	if err != nil || !status.Up(role) {
		return ""
	}
	return status.Role(role).URL()
}

// TestRandomKills kills one process after another, chosen at random, while a role writes to the store with fsync on: no acknowledged write is lost,
// and nothing is left over.
func TestRandomKills(t *testing.T) {
	t.Parallel()
	asAnyUser(t, func(t *testing.T, c *devcluster.Cluster) {
		random := seed(t)
		c.WriteParameters(t, patientParameters)
		first := c.Up(t)
		c.MustReeve(t, "plugin", "add", "--approve", buildPlugin(t, "writer", nil))
		c.MustReeve(t, "node", "role", "add", first.Node.ID, "writer")
		roles := append([]string{"writer"}, devcluster.DefaultRoles...)
		status := c.AwaitUp(t, patience, roles...)
		writing := startLoad(t, status.Role("writer").URL())

		kills := 10
		if soak.Enabled {
			kills = 50
		}
		killed := make(map[string]int)
		var last int
		for range kills {
			writing.await(t, c, writing.count()+writesBetween)
			var victim string
			victim, last = killRandom(t, c, random)
			killed[victim]++
			if victim == "reeved" {
				c.MustReeve(t, "dev", "up", "--detach")
				onlyThese(t, c, c.AwaitUp(t, patience, roles...))
			}
		}
		writing.await(t, c, writing.count()+writesBetween)
		t.Logf("killed: %v; %d writes acknowledged", killed, writing.count())
		writing.stop()
		writing.done.Wait()

		// The core may not have seen yet how the last one has ended.
		after := c.Await(t, patience, fmt.Sprintf("all roles Ready, and none of them the process %d that was killed", last), func(s devcluster.Status) bool {
			return s.Up(roles...) && !slices.Contains(slices.Collect(maps.Values(s.PIDs())), last)
		})
		if after.Node.ID != first.Node.ID || after.Cluster.ID != first.Cluster.ID {
			t.Errorf("it is node %s of cluster %s, want %s of %s", after.Node.ID, after.Cluster.ID, first.Node.ID, first.Cluster.ID)
		}
		onlyThese(t, c, after)
		nothingLost(t, after, writing)

		// And once more from what is on disk alone.
		c.KillAll(t)
		c.Up(t)
		after = c.AwaitUp(t, patience, roles...)
		onlyThese(t, c, after)
		nothingLost(t, after, writing)
	})
}

// killRandom kills a process of the cluster and returns whose it was, and which.
func killRandom(t *testing.T, c *devcluster.Cluster, random *rand.Rand) (name string, pid int) {
	t.Helper()
	processes := c.Processes(t)
	if len(processes) == 0 {
		t.Fatal("there is no process to kill")
	}
	victim := processes[random.IntN(len(processes))]
	name = "reeved"
	if instance := victim.Variable(devcluster.Instance); instance != "" {
		name = strings.Split(instance, "/")[1]
	}
	c.KillProcess(t, victim)
	return name, victim.PID
}

func nothingLost(t *testing.T, status devcluster.Status, writing *load) {
	t.Helper()
	var all map[string]string
	eventually.True(t, patience, "the store can be read", func() (bool, string) {
		answer, err := request(http.MethodGet, status.Role("writer").URL()+"/all")
		if err == nil {
			err = json.Unmarshal([]byte(answer), &all)
		}
		return err == nil, fmt.Sprint(err)
	})
	lost := 0
	for _, key := range slices.Sorted(maps.Keys(writing.acked)) {
		if all[key] != writing.acked[key] {
			lost++
			if lost <= 5 {
				t.Errorf("lost: %s is %q, and %q was acknowledged", key, all[key], writing.acked[key])
			}
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d acknowledged writes are lost", lost, len(writing.acked))
	}
}
