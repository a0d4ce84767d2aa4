package conformance

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/proto/remit"
	"github.com/reeveproject/reeve/sdk/roletest"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

const (
	// maxStart is the processor time that a role may use until it is Ready: far more than a start takes. It is not wall-clock time, which a busy
	// machine stretches.
	maxStart = 2 * time.Second
	// maxMemory is the anonymous memory that a role's processes may have unless the manifest wants more: room for a runtime with a virtual machine.
	maxMemory = 256 << 20
	// maxIdleShare is the share of a processor that an idle role may want, minIdleShare what it must have got of it: on a busy machine, even a
	// process that only wakes up for a moment has to wait.
	maxIdleShare = 0.25
	minIdleShare = 0.02
	// driven is how often a role is made to work, settledAt after how many times it is first measured: until then it may still fill its caches.
	driven    = 200
	settledAt = 50
	// The allowed growth from then on per cycle: half a file, half a thread, and as much memory as a garbage collector may leave until it runs.
	maxGrowth       = (driven - settledAt) / 2
	maxMemoryGrowth = 64 << 20
	// maxDrivenLog is how many bytes a role may log per cycle.
	maxDrivenLog = 2 << 10
	// firstRuns are the runs on the same data that may still fill it. maxRunFiles and maxRunBytes are what each later run may add.
	firstRuns   = 5
	maxRunFiles = 2
	maxRunBytes = 1 << 20
)

func resourceChecks() []Check {
	return []Check{
		{
			ID:    "resources.start",
			needs: []string{"lifecycle.cycles"},
			Sentence: fmt.Sprintf("In each of its runs in lifecycle.cycles a role uses at most %s of a processor until it has come as far as it comes: every role of a node is started when the node is, and all of them at the same time.",
				maxStart),
			run: checkStartCost,
		},
		{
			ID:    "resources.memory",
			needs: started("lifecycle.stop"),
			Sentence: fmt.Sprintf("A role that has nothing to do has at most %d MiB of memory of its own, or as much as its manifest wants (grant limit, memory): a node has many roles.",
				maxMemory>>20),
			run: checkMemory,
		},
		{
			ID: "resources.idle",
			// Flooding the log costs processor time.
			needs: started("lifecycle.stop", "logging.bounded"),
			Sentence: fmt.Sprintf("An idle role uses less than %d %% of a processor. A role that polls takes processor time from all others for as long as the node runs.",
				int(100*maxIdleShare)),
			run: checkIdle,
		},
		{
			ID:    "resources.growth",
			needs: started("lifecycle.stop", "lifecycle.health", "lifecycle.metrics"),
			Sentence: fmt.Sprintf("Made to work %d times in one process (its status, health and metrics asked for, its membership and directory changed), a role has from the %dth time on neither more and more open files nor "+
				"threads, nor more than %d MiB more memory: it is to run for years.", driven, settledAt, maxMemoryGrowth>>20),
			run: ofDrivenLife(func(l *drivenLife) error { return l.grown }),
		},
		{
			ID:    "resources.files",
			needs: []string{"lifecycle.cycles"},
			Sentence: fmt.Sprintf("The suite runs the role %d times on the same data. After run %d, each run adds at most %d files and %d MiB. A volume is finite, and nobody cleans a role's directory.",
				cycles, firstRuns, maxRunFiles, maxRunBytes>>20),
			run: checkFiles,
		},
	}
}

func checkStartCost(_ context.Context, s *subject) (string, error) {
	var found []string
	err := s.eachRole(func(of *rolev1.RoleManifest) error {
		var most time.Duration
		for _, run := range s.runs[of.GetName()] {
			most = max(most, run.start)
		}
		s.figure(of, "most expensive start", most.Seconds(), "s of a processor")
		found = append(found, fmt.Sprintf("%s %.2f s", of.GetName(), most.Seconds()))
		if most > maxStart {
			return fmt.Errorf("a start of it has used %.1f s of a processor", most.Seconds())
		}
		return nil
	})
	return strings.Join(found, ", "), err
}

func checkMemory(ctx context.Context, s *subject) (string, error) {
	var found []string
	err := s.eachIdle(ctx, func(of *rolev1.RoleManifest, life *idleLife) error {
		most := int64(maxMemory)
		if powers, _ := remit.Of(of.GetGrants()); powers.Memory > 0 {
			most = powers.Memory
		}
		found = append(found, fmt.Sprintf("%s %.1f MiB", of.GetName(), float64(life.holding.memory)/(1<<20)))
		if life.holding.memory > most {
			return fmt.Errorf("it has %d MiB of memory of its own, and nothing to do; it may have %d MiB", life.holding.memory>>20, most>>20)
		}
		return nil
	})
	return strings.Join(found, ", "), err
}

func checkIdle(ctx context.Context, s *subject) (string, error) {
	var found []string
	err := s.eachIdle(ctx, func(of *rolev1.RoleManifest, life *idleLife) error {
		found = append(found, fmt.Sprintf("%s %.1f %%", of.GetName(), 100*life.had.Seconds()/life.seconds))
		if life.restless() {
			return fmt.Errorf("it has nothing to do, and wants a processor for %.1f s of %.1f s", life.wanted.Seconds(), life.seconds)
		}
		return nil
	})
	return strings.Join(found, ", "), err
}

// drivenLife is what was observed of a role that was made to work repeatedly in one process.
type drivenLife struct {
	// err is why nothing was observed, grown what kept growing, talked that it logged too much.
	err, grown, talked error
	found              string
}

// ofDrivenLife makes a check that judges a part of every role's drivenLife.
func ofDrivenLife(part func(*drivenLife) error) func(context.Context, *subject) (string, error) {
	return func(ctx context.Context, s *subject) (string, error) {
		var found []string
		err := s.eachRole(func(of *rolev1.RoleManifest) error {
			life := s.drivenLives[of.GetName()]
			if life == nil {
				life = s.liveDriven(ctx, of)
				s.drivenLives[of.GetName()] = life
			}
			found = append(found, of.GetName()+" "+life.found)
			return errors.Join(life.err, part(life), s.endAll())
		})
		return strings.Join(found, ", "), err
	}
}

// liveDriven makes a role work, and measures it now and then.
func (s *subject) liveDriven(ctx context.Context, of *rolev1.RoleManifest) *drivenLife {
	i, err := s.settled(ctx, of, "")
	if err != nil {
		return &drivenLife{err: err}
	}
	host := s.standIn(of)
	defer s.restore(host)()
	var seen []holding
	var logged int64
	for n := 1; n <= driven; n++ {
		if n == settledAt+1 {
			_, logged = i.logged()
		}
		if err := i.drive(ctx, host, n); err != nil {
			return &drivenLife{err: errors.Join(ctx.Err(), fmt.Errorf("made to work for the %dth time: %w%s", n, err, i.lastWords()))}
		}
		if n%settledAt == 0 {
			seen = append(seen, i.holdingOf())
		}
	}
	_, after := i.logged()
	first, last := seen[0], seen[len(seen)-1]
	steadily := true
	for n := 1; n < len(seen); n++ {
		steadily = steadily && seen[n].memory > seen[n-1].memory
	}
	life := &drivenLife{found: fmt.Sprintf("%+d files, %+d threads, %+.1f MiB, %d KiB of log", last.files-first.files, last.threads-first.threads, float64(last.memory-first.memory)/(1<<20), (after-logged)>>10)}
	s.figure(of, "growth of memory", float64(last.memory-first.memory)/(1<<20), "MiB")
	s.figure(of, "growth of files", float64(last.files-first.files), "open files")
	s.figure(of, "growth of threads", float64(last.threads-first.threads), "threads")
	const times = driven - settledAt
	switch {
	case last.files-first.files > maxGrowth:
		life.grown = fmt.Errorf("made to work %d times, it has %d more files open", times, last.files-first.files)
	case last.threads-first.threads > maxGrowth:
		life.grown = fmt.Errorf("made to work %d times, it has %d more threads", times, last.threads-first.threads)
	case last.memory-first.memory > maxMemoryGrowth && steadily:
		life.grown = fmt.Errorf("made to work %d times, it has %d MiB more memory, and more each time that it was looked at", times, (last.memory-first.memory)>>20)
	}
	if after-logged > times*maxDrivenLog {
		life.talked = fmt.Errorf("made to work %d times, it has logged %d KiB", times, (after-logged)>>10)
	}
	return life
}

// drive makes a role work once: everything that a core asks it and tells it.
func (i *instance) drive(ctx context.Context, host *roletest.Host, n int) error {
	membership, _ := host.Membership.Get()
	membership = proto.CloneOf(membership)
	membership.Reason = fmt.Sprintf("member of the suite's cluster, told for the %dth time", n)
	host.Membership.Set(membership)
	directory, _ := host.Directory.Get()
	directory = proto.CloneOf(directory)
	directory.Revision++
	host.Directory.Set(directory)
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	stream, err := i.service().Watch(ctx, &rolev1.WatchRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		return fmt.Errorf("it answers Watch with %w", err)
	}
	if _, err := i.service().CheckHealth(ctx, &rolev1.CheckHealthRequest{}); err != nil && status.Code(err) == codes.DeadlineExceeded {
		return fmt.Errorf("it answers CheckHealth with %w", err)
	}
	if _, err := i.service().GetMetrics(ctx, &rolev1.GetMetricsRequest{}); err != nil && status.Code(err) == codes.DeadlineExceeded {
		return fmt.Errorf("it answers GetMetrics with %w", err)
	}
	return i.lives()
}

// restore returns a function that resets a host to its present values.
func (s *subject) restore(host *roletest.Host) func() {
	membership, _ := host.Membership.Get()
	return func() {
		host.Membership.Set(membership)
		// The directory's revision must only grow.
		host.Directory.Update(func(now *hostv1.Directory) *hostv1.Directory {
			if now = proto.CloneOf(now); now != nil {
				now.Revision++
			}
			return now
		})
	}
}

// run is one run on the data of the last one: the processor time until it settled, and the content of its directory at the end.
type run struct {
	start time.Duration
	files int
	bytes int64
}

func contentOf(directory string) (found run) {
	_ = filepath.WalkDir(directory, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return nil // it may be gone again
		}
		found.files++
		if info, err := entry.Info(); err == nil {
			found.bytes += info.Size()
		}
		return nil
	})
	return found
}

func checkFiles(_ context.Context, s *subject) (string, error) {
	var found []string
	err := s.eachRole(func(of *rolev1.RoleManifest) error {
		kept := s.runs[of.GetName()]
		if len(kept) < cycles {
			return errors.New("the suite has not looked at its runs") // lifecycle.cycles does
		}
		first, last := kept[firstRuns-1], kept[cycles-1]
		s.figure(of, "growth of data", float64(last.bytes-first.bytes)/(1<<10), "KiB")
		found = append(found, fmt.Sprintf("%s %d files, %d KiB", of.GetName(), last.files, last.bytes>>10))
		const runs = cycles - firstRuns
		if last.files-first.files > runs*maxRunFiles || last.bytes-first.bytes > runs*maxRunBytes {
			return fmt.Errorf("%d runs add %d files and %d KiB to its directory", runs, last.files-first.files, (last.bytes-first.bytes)>>10)
		}
		return nil
	})
	return strings.Join(found, ", "), err
}
