package diskguard

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/roles"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

const (
	// calm is how often the room is looked at while there is plenty, and tense how often while it is short: a disk takes a gigabyte in a second.
	calm, tense = time.Second, 100 * time.Millisecond
	// recheckEvery is how often the directories of stopped roles are measured.
	recheckEvery = 10 * time.Second
	// settle is how long the guard waits after it looked for who filled the disk before it does so again: the end of a role takes its time. Where nobody
	// was found the time grows up to settleMost, since looking costs the disk something.
	settle, settleMost = 5 * time.Second, time.Minute
	// endsWithin is how long the last of the reserve is kept for when a role that was stopped has ended. It is longer than a stop takes.
	endsWithin = 30 * time.Second
)

// Config is what a Guard needs. All of it is required but Log.
type Config struct {
	Log hclog.Logger
	// Data is the directory of the volume, Roles the one that has a directory for every role, Reserve the file of the reserve, beside which is the directory
	// <Reserve>.d of the reserved files, and Kept the file of the stopped roles.
	Data, Roles, Reserve, Kept string
	// Instances are the roles that run.
	Instances *event.Value[roles.Instances]
	// Exempt says that a role is never stopped: one of those without which there is no cluster.
	Exempt func(instance roles.Instance) bool
	Events roles.Recorder
}

// Guard watches the volume.
type Guard struct {
	config Config
	full   event.Value[map[string]string]

	mu      sync.Mutex
	stopped map[string]stop

	// The next belong to Run.
	reserves [2]reserve // by kind
	// refused is why a reserve could not be made, which is told once.
	refused [2]string
	// ample is what the volume had when it last had enough; nil: that was never seen. before is how much the roles had when it had no longer, by role, and
	// middle what the volume had then.
	ample, middle *room
	before        map[string]use
	rechecked     time.Time
	// nextBlame is when to look for who filled the disk, and pause how long to wait after that.
	nextBlame time.Time
	pause     time.Duration
	warned    bool
}

// stop is a role that was stopped.
type stop struct {
	// Bytes or Files is what its directory had of what the volume was short of.
	Bytes int64     `json:"bytes,omitempty"`
	Files int64     `json:"files,omitempty"`
	Time  time.Time `json:"time"`
	// Reason is what is shown.
	Reason string `json:"reason"`
}

// New reads which roles were stopped before. What cannot be read is as if there were none: a role that fills the volume is found again.
func New(config Config) *Guard {
	if config.Log == nil {
		config.Log = hclog.NewNullLogger()
	}
	g := &Guard{config: config, stopped: make(map[string]stop), reserves: [2]reserve{&block{path: config.Reserve}, &files{path: config.Reserve + ".d"}}}
	kept, err := readStopped(config.Kept)
	if err != nil {
		config.Log.Warn("which roles had filled the disk cannot be read; they run again", "file", config.Kept, "error", err)
	} else {
		g.stopped = kept
	}
	g.publish()
	return g
}

// Full is why a role must not run, by role.
func (g *Guard) Full() *event.Value[map[string]string] { return &g.full }

// Release lets a role run again that was stopped, and reports whether there was such a one.
func (g *Guard) Release(role string) bool {
	g.mu.Lock()
	_, was := g.stopped[role]
	delete(g.stopped, role)
	g.mu.Unlock()
	if was {
		g.changed()
	}
	return was
}

// changed keeps and publishes what is stopped.
func (g *Guard) changed() {
	g.mu.Lock()
	now := maps.Clone(g.stopped)
	g.mu.Unlock()
	if err := writeStopped(g.config.Kept, now); err != nil {
		g.config.Log.Error("which roles have filled the disk cannot be kept; the next core finds out anew", "error", err)
	}
	g.publish()
}

func (g *Guard) publish() {
	g.mu.Lock()
	defer g.mu.Unlock()
	reasons := make(map[string]string)
	for role, s := range g.stopped {
		reasons[role] = s.Reason
	}
	g.full.Set(reasons)
}

// Run guards the volume until the context ends, and returns nil. The reserve stays: the next core has it at once.
func (g *Guard) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			timer.Reset(g.look(ctx))
		}
	}
}

// look does what is due, and returns when to look again.
func (g *Guard) look(ctx context.Context) time.Duration {
	now, err := roomOf(g.config.Data)
	if err != nil {
		if !g.warned {
			g.config.Log.Error("how much room the node's volume has cannot be found out", "error", err)
		}
		g.warned = true
		return calm
	}
	g.warned = false
	g.recheck(ctx)
	limits := limitsOf(now)
	if !now.short(limits) {
		g.keepReserve(now, limits)
	}
	switch {
	case now.ample(limits):
		g.ample, g.middle, g.before, g.pause, g.nextBlame = &now, nil, nil, 0, time.Time{}
		return calm
	case !now.short(limits):
		if g.before == nil {
			g.before, g.middle = g.uses(ctx), &now
		}
		return tense
	}
	g.freeReserve(now, limits, 2)
	if !time.Now().Before(g.nextBlame) {
		g.blame(ctx, now)
	}
	if !g.ending() {
		g.freeReserve(now, limits, 0)
	}
	return tense
}

// freeReserve gives free what is short, but a part of it: one of so many, or 0 for none. At first a half is given: who takes hundreds of megabytes or thousands of
// files in a moment is to leave some for when it has ended.
func (g *Guard) freeReserve(now room, l bounds, part int64) {
	for k, reserved := range g.reserves {
		if !now.lacks(kind(k), l) {
			continue
		}
		kept := int64(0)
		if part > 0 {
			kept = l.reserve[k] / part
		}
		freed, err := reserved.free(kept)
		if err != nil {
			g.config.Log.Error("cannot give free what is reserved on the node's volume", "what", words[k], "error", err)
		}
		if freed > 0 {
			g.config.Log.Warn("the node's volume is full; some of what is reserved on it is given free", "what", words[k], "freed", freed, "left", now.left[inBytes],
				"files", now.left[inFiles], "still_reserved", kept)
		}
	}
}

// words are the kinds in the log.
var words = [2]string{"bytes", "files"}

// ending reports whether a role that was stopped still runs.
func (g *Guard) ending() bool {
	instances, _ := g.config.Instances.Get()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, instance := range instances {
		s, is := g.stopped[instance.Status.GetRole()]
		if is && instance.Process != nil && time.Since(s.Time) < endsWithin {
			return true
		}
	}
	return false
}

// keepReserve makes the reserve of each kind of which there is ample room, and that of files only where they are not plenty. Where the other kind is short it waits: a file takes bytes, too.
func (g *Guard) keepReserve(now room, l bounds) {
	for k, reserved := range g.reserves {
		if now.left[k] < l.ample[k] || kind(k) == inFiles && now.left[k] >= plentyOfFiles {
			continue
		}
		refused := ""
		complete, err := reserved.make(l.reserve[k])
		if err != nil {
			refused = err.Error()
		}
		if refused != "" && refused != g.refused[k] {
			g.config.Log.Warn("cannot reserve room on the node's volume; if it becomes full, nothing is left for the store", "what", words[k], "error", err)
		}
		if complete {
			g.config.Log.Info("room is reserved on the node's volume", "what", words[k], "amount", l.reserve[k])
		}
		g.refused[k] = refused
	}
}

// blame stops the role that filled the volume, if there is one.
func (g *Guard) blame(ctx context.Context, now room) {
	uses := g.uses(ctx)
	role, why := search{ample: g.ample, middle: g.middle, now: now, before: g.before, uses: uses}.culprit()
	if role == "" {
		g.pause = min(max(2*g.pause, settle), settleMost)
		g.nextBlame = time.Now().Add(g.pause)
		return
	}
	g.pause, g.nextBlame = 0, time.Now().Add(settle)
	used := uses[role]
	s := stop{Bytes: max(used.named, 1), Time: time.Now(), Reason: why}
	if now.scarcer(limitsOf(now)) == inFiles {
		s.Bytes, s.Files = 0, max(used.has[inFiles], 1)
	}
	g.mu.Lock()
	g.stopped[role] = s
	g.mu.Unlock()
	g.config.Log.Error("a role has filled the node's volume and is stopped", "role", role, "bytes", used.has[inBytes], "files", used.has[inFiles])
	// It is stopped first, and written down then.
	g.publish()
	g.config.Events.Record(&nodev1.Event{
		Severity: nodev1.Severity_SEVERITY_ERROR, Type: "RoleFilledDisk", Role: role, Message: "role " + role + " " + why,
		Details: map[string]string{"bytes": fmt.Sprint(used.has[inBytes]), "files": fmt.Sprint(used.has[inFiles]), "left": fmt.Sprint(now.left[inBytes])},
	})
	g.changed()
}

// uses measures what the roles have that may be stopped.
func (g *Guard) uses(ctx context.Context) map[string]use {
	instances, _ := g.config.Instances.Get()
	found := make(map[string]use)
	for _, instance := range instances {
		role := instance.Status.GetRole()
		if g.isStopped(role) || g.config.Exempt(instance) {
			continue
		}
		u := measure(ctx, filepath.Join(g.config.Roles, role))
		if instance.Process != nil {
			for k, more := range nameless(ctx, *instance.Process, g.config.Data) {
				u.has[k] += more
			}
		}
		found[role] = u
	}
	return found
}

func (g *Guard) isStopped(role string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, is := g.stopped[role]
	return is
}

// recheck lets roles run again whose data has become considerably less.
func (g *Guard) recheck(ctx context.Context) {
	if time.Since(g.rechecked) < recheckEvery {
		return
	}
	g.rechecked = time.Now()
	g.mu.Lock()
	now := maps.Clone(g.stopped)
	g.mu.Unlock()
	for _, role := range slices.Sorted(maps.Keys(now)) {
		if now := measure(ctx, filepath.Join(g.config.Roles, role)); now.whole && now.shrunk(g.was(role)) {
			g.config.Log.Info("a role that had filled the disk has less data by now and may run again", "role", role, "bytes", now.has[inBytes])
			g.Release(role)
		}
	}
}

func (g *Guard) was(role string) stop {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stopped[role]
}
