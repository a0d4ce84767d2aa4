package conformance

import "time"

// timer runs for the time that a process has for something. What the process has waited for a processor meanwhile, on a busy machine, is added at its end.
type timer struct {
	*time.Timer
	waited func() time.Duration
	// left is how long it runs now, and before what the process had waited when it began to.
	left, before time.Duration
	added        int
}

// mostAdded is how often time is added: a process that wants a processor all the time waits for it all the time.
const mostAdded = 5

func newTimer(most time.Duration, waited func() time.Duration) *timer {
	return &timer{Timer: time.NewTimer(most), waited: waited, left: most, before: waited()}
}

// over reports, when the timer has fired, whether the time is over. Otherwise it runs on.
func (t *timer) over() bool {
	now := t.waited()
	if t.left = min(now-t.before, t.left); t.left <= time.Millisecond || t.added == mostAdded {
		return true
	}
	t.before, t.added = now, t.added+1
	t.Reset(t.left)
	return false
}

// waited is how long the threads of a process have waited for a processor.
func (p *process) waited() time.Duration {
	had, wanted := processorTime(p.pid())
	return wanted - had
}
