package nodes_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/fleet"
	"github.com/reeveproject/reeve/e2e/internal/soak"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

const (
	// floodCalls is how many registrations strangers ask for, floodAtOnce how many of them at a time, and perConnection how many on one connection.
	floodCalls, floodAtOnce, perConnection = 6000, 32, 20
	// floodMemory is by how much the curator's memory may grow meanwhile.
	floodMemory = 96 << 20
	// floodServed is how many times the owner is served meanwhile, with every node heard, before the strangers give up.
	floodServed = 3
	// floodUnheard is for how long a node may not be heard meanwhile, and floodSlow how long a change by the owner may take. Here the strangers are on the same machine, so
	// only soak holds that.
	floodUnheard, floodSlow = 15 * time.Second, 30 * time.Second
)

// flood has strangers register by the thousand, from one address and from many, without tickets and with one that is long spent. The cluster is managed and its nodes are
// heard all the while, and the curator's memory stays bounded.
func (c *besieged) flood(t *testing.T) {
	spent := c.ticket(t)
	if _, err := c.stranger(t, "127.0.5.1").api.Register(t.Context(), request(t, spent)); err != nil {
		t.Fatal(err)
	}
	before := memory(t, c.pid)
	most := before
	entriesBefore, keptBefore := c.audited(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var mu sync.Mutex
	answers := make(map[codes.Code]int)
	var strangers sync.WaitGroup
	numbers := make(chan int)
	for worker := range floodAtOnce {
		strangers.Go(func() {
			for batch := range numbers {
				// Half of them are behind one address; the others are from all over.
				from := "127.0.4.1"
				if worker%2 == 1 {
					from = fmt.Sprintf("127.%d.%d.7", 10+batch%100, batch/100)
				}
				conn := curatorAt(t, c.curator, from, selfSigned(t, devcluster.NewKey(t)))
				for range perConnection {
					asked := request(t, spent)
					if batch%4 != 0 {
						asked.TicketSecret = random(32)
					}
					_, err := clusterv1.NewEnrolmentServiceClient(conn).Register(ctx, asked)
					mu.Lock()
					answers[status.Code(err)]++
					mu.Unlock()
				}
				_ = conn.Close()
			}
		})
	}
	began := time.Now()
	done, enough := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for batch, going := 0, true; ctx.Err() == nil && (going || batch < floodCalls/perConnection); batch++ {
			numbers <- batch
			select {
			case <-enough:
				going = false
			default:
			}
		}
		close(numbers)
		strangers.Wait()
	}()
	var served []time.Duration
	heard := 0
	unheard, longest, seenUnheard := make(map[string]time.Time), time.Duration(0), ""
	defer func() {
		cancel()
		<-done
	}()
	for under := true; under; {
		select {
		case <-done:
			under = false
		default:
		}
		asked := time.Now()
		c.MustReeve(t, "node", "label", c.second, fmt.Sprintf("flood=%d", len(served)))
		nodes, seen := fleet.List(t, c.Cluster, 1)
		served = append(served, time.Since(asked))
		if fleet.ByID(nodes, c.first).Healthy && fleet.ByID(nodes, c.second).Healthy {
			if heard++; heard == floodServed {
				close(enough)
			}
		}
		for _, id := range []string{c.first, c.second} {
			if fleet.ByID(nodes, id).Healthy {
				delete(unheard, id)
			} else if unheard[id].IsZero() {
				unheard[id] = asked
			} else {
				longest, seenUnheard = max(longest, time.Since(unheard[id])), seen
			}
		}
		most = max(most, memory(t, c.pid))
	}
	took := time.Since(began)
	total := 0
	for _, n := range answers {
		total += n
	}
	slices.Sort(served)
	t.Logf("%d registrations by strangers in %s (%.0f/s), answered %v; meanwhile %d changes by the owner, each with a list of the nodes, in %s (median), %s (the slowest); "+
		"a node was not heard for %s at most; the curator had %d MiB before and %d MiB at most", total, took.Round(time.Millisecond), float64(total)/took.Seconds(), answers, len(served),
		served[len(served)/2].Round(time.Millisecond), served[len(served)-1].Round(time.Millisecond), longest.Round(time.Millisecond), before>>20, most>>20)
	if heard < floodServed {
		t.Errorf("the flood went on for %s, and the owner saw every node heard in %d of %d lists, want %d: %s", took, heard, len(served), floodServed, seenUnheard)
	}
	if slow := served[len(served)-1]; soak.Enabled && (longest > floodUnheard || slow > floodSlow) {
		t.Errorf("a node is not heard during the flood for %s, and a change by the owner took %s: %s", longest, slow, seenUnheard)
	}
	if answers[codes.OK] != 0 {
		t.Errorf("%d strangers were let in", answers[codes.OK])
	}
	for code, n := range answers {
		if !slices.Contains([]codes.Code{codes.Unauthenticated, codes.ResourceExhausted, codes.Unavailable}, code) {
			t.Errorf("%d strangers are answered %s", n, code)
		}
	}
	if total < floodCalls || answers[codes.Unauthenticated] == 0 || answers[codes.ResourceExhausted] == 0 {
		t.Errorf("the flood was none: %v", answers)
	}
	if most-before > floodMemory {
		t.Errorf("the curator's memory grew from %d to %d MiB", before>>20, most>>20)
	}
	// The flood is in the audit log, and does not fill it.
	var entries int
	eventually.True(t, patience, "the audit log counts all of them", func() (bool, string) {
		now, kept := c.audited(t)
		entries = now - entriesBefore
		return kept-keptBefore >= total, fmt.Sprintf("%d calls in %d entries", kept-keptBefore, entries)
	})
	t.Logf("they are %d entries of the audit log", entries)
	if entries > total/10 {
		t.Errorf("the flood has made %d entries of the audit log", entries)
	}
	if now, seen := fleet.Status(t, c.Cluster, 1); now.PIDs()["curator"] != c.pid {
		t.Errorf("the curator is another process: %s", seen)
	}
}

// audited is how many entries of the audit log are about Register, and how many calls they stand for.
func (c *besieged) audited(t *testing.T) (entries, calls int) {
	t.Helper()
	result := c.MustReeve(t, "audit", "--limit", "0", "-o", "json")
	var document struct {
		Entries []struct {
			RPC        string `json:"rpc"`
			Suppressed int    `json:"suppressed"`
		} `json:"entries"`
	}
	if err := json.Unmarshal([]byte(result.Stdout), &document); err != nil {
		t.Fatalf("%v: %s", err, result)
	}
	for _, entry := range document.Entries {
		if strings.HasSuffix(entry.RPC, "Register") {
			entries++
			calls += 1 + entry.Suppressed
		}
	}
	return entries, calls
}

// memory is the resident memory of a process in bytes.
func memory(t *testing.T, pid int) int {
	t.Helper()
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(content)) {
		var kilobytes int
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kilobytes); n == 1 {
			return kilobytes << 10
		}
	}
	t.Fatal("the kernel does not say how much memory the curator has")
	return 0
}
