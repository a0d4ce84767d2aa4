package roles

import (
	"context"
	"io/fs"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/sdk/event"
)

// Defaults of Config.
const (
	// DefaultBackoffInitial is short, because most ends are accidents: a role that was killed is back before anybody has looked.
	DefaultBackoffInitial = 100 * time.Millisecond
	// DefaultBackoffMax is long enough that a role which cannot start costs the node nothing, and short enough for an operator to wait for.
	DefaultBackoffMax = 30 * time.Second
	// DefaultBackoffReset is how long a role must be Ready for its next end to count as the first again.
	DefaultBackoffReset = 30 * time.Second
	// DefaultBackoffJitter spreads the restarts of roles that fell together, as a part of the interval to either side.
	DefaultBackoffJitter = 0.2

	// DefaultBudgetFailures and DefaultBudgetWindow are a role's crash budget. With the growing pauses between its starts, a role that ends at once
	// uses it up in a minute and a half: long enough for what passes by itself, short enough for an operator who waits for the outcome.
	DefaultBudgetFailures = 10
	DefaultBudgetWindow   = 10 * time.Minute

	// DefaultProbation is how long a version that is new on the node must be well to be kept: what is wrong with a version mostly shows at once.
	DefaultProbation = 30 * time.Second
	// DefaultTrialPatience is how long such a version may take to be Ready or Degraded at all: what has to convert much data takes minutes.
	DefaultTrialPatience = 5 * time.Minute

	// DefaultLivenessInterval is how often a role is asked whether it is well: often enough to be found out within half a minute, and too seldom to
	// be noticed.
	DefaultLivenessInterval = 5 * time.Second
	// DefaultLivenessTimeout is how long a role may go without an answer: a machine that is merely overloaded does not lose its roles.
	DefaultLivenessTimeout = 20 * time.Second
)

// Config is what a Reconciler needs. What is not said to be optional is required.
type Config struct {
	Log      hclog.Logger
	Launcher Launcher
	Hosts    HostSockets
	// Desired is what should run. Nothing is started before its first value, and nothing is stopped either: there is nothing.
	Desired *event.Value[Desired]

	// Adopted are instances that run already, at most one of a role: an earlier core launched them. They are shown from the beginning, and attended to with
	// the first value of Desired.
	Adopted []Running

	// The time before a role that ended is started again: from BackoffInitial, doubling, to BackoffMax, each less or more by up to
	// BackoffJitter (a part of it; negative: none). It begins anew after BackoffReset in Ready, and with every change of what is desired. Zero values
	// mean the defaults.
	BackoffInitial, BackoffMax, BackoffReset time.Duration
	BackoffJitter                            float64
	// Grace is how long a role may take to stop whose manifest does not say; zero: plugin.DefaultGrace.
	Grace time.Duration

	// Budget is the crash budget of a role; nil: the default for all.
	Budget func(role string) Budget
	// Liveness is how roles that do not answer are found; zero values mean the defaults.
	Liveness Liveness
	// FailuresDir is where the failures of the roles are kept, so that a core that starts again goes on with them; it is made if its parent is there.
	// Empty: nowhere.
	FailuresDir string
	// BootID tells one boot of the machine from another: what failed in another one has its whole budget. It may be empty where nothing is kept.
	BootID string

	// Shortage says that the node has run out of something that roles need, and what to do about it; "" if it has not. What fails meanwhile is started
	// again however often it fails: its crash budget is not for what is the node's fault.
	Shortage func() string
	// StoreAway says that the consensus store of this node has no majority; "" if it has, or if there is none here. Roles that use the store fail for that, and it is not their fault either.
	// nil: nobody knows.
	StoreAway func() string
	// Hung returns when the node's disk last did not answer, which is now if it does not: a role that did not answer either is not ended for it. The zero time:
	// never. It may take as long as a slow disk needs. Nil: never, too.
	Hung func(context.Context) time.Time

	// Probation is how long a version of a plugin must be Ready or Degraded without a failure, where there is one to go back to, before it is what the
	// node stays with; TrialPatience how long it may take to be Ready or Degraded. Zero values mean the defaults.
	Probation, TrialPatience time.Duration
	// Stored says whether the executable with a digest is on this node. It is asked often and must be quick.
	Stored func(digest string) bool

	// Events is told what happens to the roles. docs/reference/events.md lists the events.
	Events Recorder
	// Launched is told how long it took from the beginning of a launch until the role was Ready for the first time. It must not block.
	Launched func(role string, took time.Duration)

	// writeFile writes what is kept of a role's failures; nil: storage.WriteFile does.
	writeFile func(path string, content []byte, mode fs.FileMode) error
}

// Budget is how often a role may fail. Past it the role is Failed.
type Budget struct {
	// Failures is how many are allowed within the window; 0 or less: none, the first is one too many.
	Failures int
	// Window is how long a failure counts; DefaultBudgetWindow if it is not positive.
	Window time.Duration
}

// Liveness is how roles that are alive but do not answer are found.
type Liveness struct {
	// Interval is the time between two questions to a role that is well. One that is not is asked again after a fourth of Timeout, if that is sooner.
	Interval time.Duration
	// Timeout is how long a role may not be well before it is ended: from the first question that it did not answer well. Time in which the core
	// itself did not run does not count.
	Timeout time.Duration
}

func (c *Config) defaults() {
	for _, d := range []struct {
		value    *time.Duration
		standard time.Duration
	}{
		{&c.BackoffInitial, DefaultBackoffInitial},
		{&c.BackoffMax, DefaultBackoffMax},
		{&c.BackoffReset, DefaultBackoffReset},
		{&c.Grace, plugin.DefaultGrace},
		{&c.Probation, DefaultProbation},
		{&c.TrialPatience, DefaultTrialPatience},
		{&c.Liveness.Interval, DefaultLivenessInterval},
		{&c.Liveness.Timeout, DefaultLivenessTimeout},
	} {
		if *d.value <= 0 {
			*d.value = d.standard
		}
	}
	switch {
	case c.BackoffJitter == 0:
		c.BackoffJitter = DefaultBackoffJitter
	case c.BackoffJitter < 0:
		c.BackoffJitter = 0
	}
}

func (c *Config) budget(role string) Budget {
	if c.Budget == nil {
		return Budget{Failures: DefaultBudgetFailures, Window: DefaultBudgetWindow}
	}
	b := c.Budget(role)
	b.Failures = max(b.Failures, 0)
	if b.Window <= 0 {
		b.Window = DefaultBudgetWindow
	}
	return b
}
