package conformance

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/reeveproject/reeve/sdk/roletest"

	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

const (
	// spinTime is how long a role is watched after it has lost something.
	spinTime = 2 * time.Second
	// maxSpinShare is the share of a processor that it may want. A role that retries ten times a second stays far below.
	maxSpinShare = 0.5
	// minSpinShare is what it must have got of it: on a busy machine, even a process that only wakes up for a moment has to wait long.
	minSpinShare = 0.02
	maxSpinCalls = 30
	maxSpinLog   = 32 << 10
)

// effort is what a role has done so far.
type effort struct {
	had, wanted time.Duration // processor time
	calls       int
	logged      int64
}

// followed are the methods of the host that a role may call repeatedly.
func followed() []string {
	return []string{"WatchMembership", "WatchDirectory", "WatchNetwork", "OpenConsensus", "WatchTrust", "IssueSVID"}
}

func (i *instance) effort(host *roletest.Host) effort {
	var now effort
	now.had, now.wanted = processorTime(i.pid())
	for _, method := range followed() {
		now.calls += host.Calls(method)
	}
	_, now.logged = i.logged()
	return now
}

// processorTime returns the processor time that a process has got, and how long it wanted a processor: what it got plus its time in the run queue.
// For a process that waits for nothing else the latter grows like the clock, however busy the machine is.
func processorTime(pid int) (had, wanted time.Duration) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, thread := range threads {
		content, _ := os.ReadFile(thread) // it may have ended
		fields := strings.Fields(string(content))
		if len(fields) < 2 {
			continue
		}
		ran, _ := strconv.ParseInt(fields[0], 10, 64)
		waited, _ := strconv.ParseInt(fields[1], 10, 64)
		had += time.Duration(ran)
		wanted += time.Duration(ran + waited)
	}
	return had, wanted
}

// looks is how often a role is watched before it counts as doing too much. On a busy machine a single look may mislead.
const looks = 3

// spins returns what a role does too much of after it has lost something. A single look without a finding suffices.
func (i *instance) spins(ctx context.Context, host *roletest.Host) (err error) {
	for range looks {
		if err = i.spinsOnce(ctx, host); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// spinsOnce watches a role for spinTime and returns what it does too much of.
func (i *instance) spinsOnce(ctx context.Context, host *roletest.Host) error {
	before, began := i.effort(host), time.Now()
	timer := newTimer(spinTime, i.waited)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-i.ended:
			return nil // the caller notices too
		case <-ctx.Done():
			return ctx.Err()
		}
		after, seconds := i.effort(host), time.Since(began).Seconds()
		switch {
		case (after.wanted-before.wanted).Seconds() > maxSpinShare*seconds && (after.had-before.had).Seconds() > minSpinShare*seconds:
			return fmt.Errorf("it wants a processor for %.1f s of %.1f s", (after.wanted - before.wanted).Seconds(), seconds)
		case float64(after.calls-before.calls) > maxSpinCalls*seconds:
			return fmt.Errorf("it calls its host %d times within %.1f s", after.calls-before.calls, seconds)
		case float64(after.logged-before.logged) > maxSpinLog*seconds:
			return fmt.Errorf("it logs %d KiB within %.1f s", (after.logged-before.logged)>>10, seconds)
		case timer.over():
			return nil
		}
	}
}

// lives returns an error if a role has ended.
func (i *instance) lives() error {
	select {
	case <-i.ended:
		return fmt.Errorf("its process ends by itself (%s)%s", i.exit(), i.lastWords())
	default:
	}
	if now, _ := i.status.Get(); now.GetState() == rolev1.RoleState_ROLE_STATE_FAILED {
		return fmt.Errorf("it has failed (%s)%s", now.GetReason(), i.lastWords())
	}
	return nil
}

// asks waits until a role has asked its host for the store: one that has not yet would find it open. There is no notification.
func (i *instance) asks(ctx context.Context, asked func() bool) {
	for deadline := time.Now().Add(readyTime); !asked() && time.Now().Before(deadline); {
		select {
		case <-i.ended:
			return
		case <-ctx.Done():
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// livesFor watches a role for a while, and returns an error if it ends.
func (i *instance) livesFor(ctx context.Context, most time.Duration) error {
	timer := newTimer(most, i.waited)
	defer timer.Stop()
	watcher := i.status.Watch()
	for {
		if err := i.lives(); err != nil {
			return err
		}
		select {
		case <-i.ended:
		case <-watcher.Changed():
			if _, err := watcher.Next(ctx); err != nil {
				return err
			}
		case <-timer.C:
			if timer.over() {
				return i.lives()
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
