package diskguard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/roles"
	"github.com/reeveproject/reeve/core/storage"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

const (
	// probeEvery is how often a write is tried, which costs the file system what a small file costs that is made and removed; and how long it may take before the disk counts as one that does not
	// answer: a busy disk is slow as well, and is forgiven.
	probeEvery = 5 * time.Second
	// leavesWithin is how long Run waits for what still writes when it ends: a file that is open keeps the volume from being closed.
	leavesWithin = 100 * time.Millisecond
)

// ProbeConfig is what a Prober needs. All of it is required but Log, Write and Every.
type ProbeConfig struct {
	Log hclog.Logger
	// Data is the directory of the volume.
	Data   string
	Events roles.Recorder
	// Write tries a write in a directory; nil: that of a file without a name.
	Write func(directory string) error
	// Every is how long to wait between two writes, and how long one may take before the disk counts as one that does not answer; 0: 5 s each.
	Every time.Duration
}

// Prober finds out by writing whether the volume takes writes: a file system that has met an error refuses them and is not mounted read-only, as far as statfs
// tells, and one that is frozen does not answer.
type Prober struct {
	config  ProbeConfig
	problem event.Value[string]
	// recorded is closed once the last event was recorded; nil: there was none. It is Run's.
	recorded chan struct{}
	// asked takes who asks whether the volume answers now. What comes with it is closed once that is known.
	asked chan chan struct{}

	mu sync.Mutex
	// hangs says that the present write has not ended in time, answered when one last ended that had not.
	hangs    bool
	answered time.Time
}

// NewProber returns a prober that knows of no problem.
func NewProber(config ProbeConfig) *Prober {
	if config.Log == nil {
		config.Log = hclog.NewNullLogger()
	}
	if config.Write == nil {
		config.Write = storage.Probe
	}
	config.Every = cmp.Or(config.Every, probeEvery)
	p := &Prober{config: config, asked: make(chan chan struct{})}
	p.problem.Set("")
	return p
}

// Problem is why the volume takes no writes, and what to do about it; empty: it takes them.
func (p *Prober) Problem() *event.Value[string] { return &p.problem }

// Hung finds out by a write whether the volume answers, and returns when it last did not, which is now if it does not: what waited for it is not to blame. The zero time: never. It waits for Run, and
// if the context ends it returns what is known.
func (p *Prober) Hung(ctx context.Context) time.Time {
	known := make(chan struct{})
	select {
	case p.asked <- known:
		select {
		case <-known:
		case <-ctx.Done():
		}
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hangs {
		return time.Now()
	}
	return p.answered
}

// hang notes whether the volume answers.
func (p *Prober) hang(now bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hangs && !now {
		p.answered = time.Now()
	}
	p.hangs = now
}

// Run probes until the context ends, and returns nil. It does not wait long for a write that hangs, which only the disk can end.
func (p *Prober) Run(ctx context.Context) error {
	var asking []chan struct{}
	defer func() { answer(asking) }()
	for {
		began, wrote, written := time.Now(), make(chan error, 1), make(chan struct{})
		go func() {
			defer close(written)
			wrote <- p.config.Write(p.config.Data)
		}()
		late, isLate := time.After(p.config.Every), false
		for waiting := true; waiting; {
			select {
			case err := <-wrote:
				p.hang(false)
				p.tell(p.refused(err))
				waiting = false
			case <-late:
				isLate = true
				p.hang(true)
				p.tell(fmt.Sprintf("the disk does not answer: a write to the node's volume %s has not ended since %s: see the kernel's log, and run fsfreeze -u if its file system is frozen; roles wait, and go on by themselves",
					p.config.Data, began.UTC().Format(time.TimeOnly+" UTC")))
			case known := <-p.asked:
				asking = append(asking, known)
			case <-ctx.Done():
				p.leave(written)
				return nil
			}
			if isLate || !waiting {
				answer(asking)
				asking = nil
			}
		}
		select {
		case <-time.After(p.config.Every):
		case known := <-p.asked:
			asking = append(asking, known)
		case <-ctx.Done():
			p.leave(written)
			return nil
		}
	}
}

func answer(asking []chan struct{}) {
	for _, known := range asking {
		close(known)
	}
}

// leave waits until the last write and the last event are done, unless the disk hangs.
func (p *Prober) leave(written <-chan struct{}) {
	late := time.After(leavesWithin)
	for _, done := range []<-chan struct{}{written, p.recorded} {
		if done == nil {
			continue
		}
		select {
		case <-done:
		case <-late:
			return
		}
	}
}

// Refuses reports whether an error is that of a file system that takes no writes at all.
func Refuses(err error) bool {
	return errors.Is(err, unix.EROFS) || errors.Is(err, unix.EIO) || errors.Is(err, unix.EUCLEAN) || errors.Is(err, unix.ESHUTDOWN)
}

// refused says what the error of a write means; "": the volume takes writes, or is full, of which others speak.
func (p *Prober) refused(err error) string {
	if !Refuses(err) {
		return ""
	}
	return fmt.Sprintf("the file system of the node's volume %s takes no writes (%v): it was mounted read-only, or has met an error: %s; the node goes on by itself if it can write before that", p.config.Data, err, storage.Repair)
}

// tell publishes a problem, and then records it: the journal may be on the same disk.
func (p *Prober) tell(problem string) {
	if last, _ := p.problem.Get(); last == problem {
		return
	}
	p.problem.Set(problem)
	entry := &nodev1.Event{Severity: nodev1.Severity_SEVERITY_ERROR, Type: "VolumeTakesNoWrites", Message: problem}
	if problem == "" {
		entry = &nodev1.Event{Severity: nodev1.Severity_SEVERITY_INFO, Type: "VolumeTakesWrites", Message: "the node's volume takes writes again"}
		p.config.Log.Info("the node's volume takes writes again", "volume", p.config.Data)
	} else {
		p.config.Log.Error("the node's volume takes no writes", "volume", p.config.Data, "problem", problem)
	}
	// Not to be waited for, but by the next event: to record it is a write to that disk.
	former, recorded := p.recorded, make(chan struct{})
	p.recorded = recorded
	go func() {
		defer close(recorded)
		if former != nil {
			<-former
		}
		p.config.Events.Record(entry)
	}()
}
