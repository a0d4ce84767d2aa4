package steps_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/fleet"
	"github.com/reeveproject/reeve/e2e/internal/procfs"
	"github.com/reeveproject/reeve/e2e/internal/soak"
)

const (
	// pointInterval is how often it is looked where a role has ended: sooner than it is started again.
	pointInterval = 20 * time.Millisecond
	// pausesAfter is how many ends of a role a core answers with a short pause before the next start.
	pausesAfter = 3
)

// points has the instances of one role end at points on their way (see sdk/checkpoint), each point once, on whichever node it is come to first.
type points struct {
	t    *testing.T
	c    *devcluster.Cluster
	role string
	// together are the nodes of which the role may only be away on one at a time.
	together []int
	// ctx ends with the looking.
	ctx context.Context

	mu sync.Mutex
	// left are the points that were not come to yet, and the nodes on which they are waited for.
	left  map[string][]int
	taken map[string]int
	// written is what is in the files of the nodes.
	written map[int][]string
	ends    map[int]int
	// away is the node of those together whose role has ended and has not begun again; 0: none is.
	away int

	stop    context.CancelFunc
	working sync.WaitGroup
}

// startPoints begins to look. It ends with the test, or by stop.
func startPoints(t *testing.T, c *devcluster.Cluster, role string) *points {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p := &points{
		t: t, c: c, role: role, left: make(map[string][]int), taken: make(map[string]int), written: make(map[int][]string), ends: make(map[int]int),
		ctx: ctx, stop: cancel,
	}
	p.working.Go(p.run)
	t.Cleanup(p.end)
	return p
}

// keep has the role be away on one of these nodes at a time only, from now on.
func (p *points) keep(together ...int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.together = together
}

func (p *points) end() {
	p.stop()
	p.working.Wait()
}

// around are the points before and after steps.
func around(steps ...string) (points []string) {
	for _, step := range steps {
		points = append(points, "before:"+step, "after:"+step)
	}
	return points
}

// add has the role end at further points, on nodes with these numbers.
func (p *points) add(nodes []int, points ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, point := range points {
		p.left[point] = nodes
	}
	defer p.hold()()
	p.write()
}

// missing are the points that were not come to yet.
func (p *points) missing() []string {
	p.see() // what was done just now may have come to one since the last look
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.left))
}

// done are the steps before and after which the role has ended, and how often it has ended.
func (p *points) done() (steps []string, ends int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for point := range p.taken {
		if step, ok := strings.CutPrefix(point, "before:"); ok && p.taken["after:"+step] > 0 {
			steps = append(steps, step)
		}
	}
	for _, n := range p.ends {
		ends += n
	}
	slices.Sort(steps)
	return steps, ends
}

func (p *points) directory(number int) string {
	return filepath.Join(p.c.NodeDirectory(number), "data", "roles", p.role)
}

func (p *points) file(number int) string { return filepath.Join(p.directory(number), "failpoint") }

// begun is when the role last began on a node; zero if it never has.
func (p *points) begun(number int) time.Time {
	info, err := os.Stat(p.steps(number))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// steps is the file in which the role on a node names its steps, each time that it begins.
func (p *points) steps(number int) string {
	return filepath.Join(p.directory(number), "failpoint-steps")
}

func (p *points) run() {
	ticker := time.NewTicker(pointInterval)
	defer ticker.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-ticker.C:
			p.see()
		}
	}
}

// see looks where the role has ended since, and has it waited for there.
func (p *points) see() {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.hold()()
	for number, ended := range p.look() {
		p.working.Go(func() { p.back(number, ended) })
	}
}

// hold has no role take a point out of its file until release is called: what is taken out between a look at the file and its replacement would be in it again. The lock is
// held.
func (p *points) hold() (release func()) {
	numbers := slices.Collect(maps.Keys(p.written))
	for _, nodes := range p.left {
		numbers = append(numbers, nodes...)
	}
	slices.Sort(numbers)
	var held []*os.File
	for _, number := range slices.Compact(numbers) {
		directory, err := os.Open(p.directory(number))
		if err != nil {
			continue // it is not there, and so no role
		}
		held = append(held, directory)
		if err := unix.Flock(int(directory.Fd()), unix.LOCK_EX); err != nil {
			p.t.Errorf("the points of %s on node %d cannot be locked: %v", p.role, number, err)
		}
	}
	return func() {
		for _, directory := range held {
			_ = directory.Close()
		}
	}
}

// look finds the nodes on which the role has ended since, and when. The lock is held.
func (p *points) look() map[int]time.Time {
	ended := make(map[int]time.Time)
	for number, lines := range p.written {
		content, err := os.ReadFile(p.file(number))
		info, statErr := os.Stat(p.file(number))
		if err != nil || statErr != nil {
			delete(p.written, number) // what the role had kept was removed, and this with it
			continue
		}
		left := strings.Fields(string(content))
		for _, point := range lines {
			if slices.Contains(left, point) {
				continue
			}
			delete(p.left, point)
			p.taken[point]++
			p.ends[number]++
			p.t.Logf("%s ended on node %d %s", p.role, number, point)
			ended[number] = info.ModTime() // the last thing that it did was to take out the point
			if slices.Contains(p.together, number) {
				p.away = number
			}
		}
	}
	p.write()
	return ended
}

// write writes down where the role is to end. The lock is held.
func (p *points) write() {
	wanted := make(map[int][]string)
	for point, nodes := range p.left {
		for _, number := range nodes {
			if p.away == 0 || !slices.Contains(p.together, number) {
				wanted[number] = append(wanted[number], point)
			}
		}
	}
	for number := range p.written {
		if _, ok := wanted[number]; !ok {
			wanted[number] = nil
		}
	}
	for number, lines := range wanted {
		slices.Sort(lines)
		if written, ok := p.written[number]; ok && slices.Equal(written, lines) {
			continue
		}
		if err := p.replace(number, lines); err != nil {
			delete(p.written, number) // the directory is just being removed: the next look makes it again
			continue
		}
		p.written[number] = lines
	}
}

func (p *points) replace(number int, lines []string) error {
	directory := p.directory(number)
	if _, err := os.Stat(filepath.Dir(filepath.Dir(directory))); err != nil {
		return err // the volume is not there yet
	}
	for _, made := range []string{filepath.Dir(directory), directory} {
		if err := os.Mkdir(made, 0o711); err == nil {
			if err := p.own(made); err != nil {
				return err
			}
		}
	}
	draft := p.file(number) + ".draft"
	if err := os.WriteFile(draft, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		return err
	}
	return os.Rename(draft, p.file(number))
}

// own gives what the test makes in the name of the core to the core's user.
func (p *points) own(path string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	return os.Chown(path, shared.Ordinary.UID, shared.Ordinary.GID)
}

// back waits until the role has begun again on a node on which it has ended, and lets it end elsewhere then. Its member of the store is there soon after that, and mostly before the others
// have elected a leader: what that one then does it is stopped at, too.
func (p *points) back(number int, ended time.Time) {
	p.mu.Lock()
	often := p.ends[number]%pausesAfter == 0
	waits := p.away == number
	p.mu.Unlock()
	if often { // so that the next pause is the shortest again, and the crash budget whole
		p.command(p.ctx, "node", "role", "restart", "self", p.role, "--dir", p.c.NodeDirectory(number))
	}
	if !waits {
		return
	}
	if _, ok := eventually.Try(p.ctx, fleet.Patience, pointInterval, func() (bool, string) { return p.begun(number).After(ended), "" }); !ok && p.ctx.Err() == nil {
		result := p.command(p.ctx, "status", "-o", "json", "--dir", p.c.NodeDirectory(number))
		p.t.Errorf("%s is not back on node %d: %s", p.role, number, result)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away == number {
		p.away = 0
		defer p.hold()()
		p.write()
	}
}

// kill ends the role on a node where it is not at a point, unless it is away elsewhere. process is what it runs as, or has run as.
func (p *points) kill(number int, process procfs.Process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away != 0 {
		return
	}
	ended := time.Now()
	p.away = number
	p.ends[number]++
	release := p.hold()
	p.write()
	release()
	p.c.KillProcess(p.t, process)
	p.working.Go(func() { p.back(number, ended) })
}

// command runs the command line, and does not judge how it ends.
func (p *points) command(ctx context.Context, arguments ...string) devcluster.Result {
	return tryCommand(ctx, p.t, p.c, arguments...)
}

// tryCommand runs the command line, in any goroutine, and does not judge how it ends.
func tryCommand(ctx context.Context, t *testing.T, c *devcluster.Cluster, arguments ...string) devcluster.Result {
	running := c.StartAlone(t, arguments...)
	select {
	case <-running.Done():
	case <-ctx.Done():
		<-running.Done() // a command ends in time by itself
	}
	return running.Wait(t, time.Second)
}

// writes makes one management write after another through all nodes in turn, until it is told to stop.
type writes struct {
	acknowledged, tried atomic.Int64
	longest             time.Duration
	stop                context.CancelFunc
	working             sync.WaitGroup
}

// withoutWrite is how long it may take in soak until a write is acknowledged while one role after another ends: much longer than an election.
const withoutWrite = 45 * time.Second

func startWrites(t *testing.T, c *devcluster.Cluster, id string) *writes {
	ctx, cancel := context.WithCancel(t.Context())
	w := &writes{stop: cancel}
	w.working.Go(func() {
		last := time.Now()
		for ctx.Err() == nil {
			number := w.tried.Add(1)
			result := tryCommand(ctx, t, c, "node", "label", id, fmt.Sprintf("written=%d", number), "--dir", c.NodeDirectory(1+int(number%3)))
			gap := time.Since(last)
			w.longest = max(w.longest, gap)
			switch {
			case result.Code == 0:
				w.acknowledged.Store(number)
				last = time.Now()
			case soak.Enabled && gap > withoutWrite && ctx.Err() == nil:
				t.Errorf("no write was acknowledged for %s: %s", gap, result)
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	})
	t.Cleanup(w.end)
	return w
}

// through waits until a write is acknowledged that was tried later than now: the cluster takes them still.
func (w *writes) through(t *testing.T) {
	t.Helper()
	before := w.tried.Load()
	eventually.True(t, fleet.Patience, "a write is acknowledged", func() (bool, string) {
		now := w.acknowledged.Load()
		return now > before, fmt.Sprintf("%d is the last that was acknowledged, and %d were tried before", now, before)
	})
}

func (w *writes) end() {
	w.stop()
	w.working.Wait()
}
