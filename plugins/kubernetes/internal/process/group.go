package process

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Group is the programs of a role, each kept running by itself, and how they are.
type Group struct {
	// Show is called with every change of a program's state, in words. Empty words: the program is not to run any more.
	Show func(name, state string)

	once    sync.Once
	changed chan struct{}

	mu     sync.Mutex
	states map[string]State
	runs   map[string]run
}

// run is a program from one request to start it anew to the next.
type run struct {
	end   context.CancelFunc
	ended chan struct{}
}

func (g *Group) init() {
	g.once.Do(func() {
		g.changed = make(chan struct{}, 1)
		g.states = make(map[string]State)
		g.runs = make(map[string]run)
	})
}

// Keep keeps a program running until ctx is done, and has ended it when it returns.
func (g *Group) Keep(ctx context.Context, program Program) {
	g.init()
	see := program.See
	program.See = func(now State) {
		if see != nil {
			see(now)
		}
		g.mu.Lock()
		g.states[program.Name] = now
		g.mu.Unlock()
		g.Show(program.Name, now.String())
		select {
		case g.changed <- struct{}{}:
		default:
		}
	}
	for ctx.Err() == nil {
		once, end := context.WithCancel(ctx)
		g.mu.Lock()
		now := run{end: end, ended: make(chan struct{})}
		g.runs[program.Name] = now
		g.mu.Unlock()
		program.Run(once)
		end()
		close(now.ended)
	}
	g.mu.Lock()
	delete(g.states, program.Name)
	delete(g.runs, program.Name)
	g.mu.Unlock()
	g.Show(program.Name, "")
}

// Anew restarts a program at once, so that it reads its files again. It does nothing if Keep does not run the program. The channel that it returns is closed when the program has ended.
func (g *Group) Anew(name string) <-chan struct{} {
	g.init()
	g.mu.Lock()
	defer g.mu.Unlock()
	now, ok := g.runs[name]
	if !ok {
		ended := make(chan struct{})
		close(ended)
		return ended
	}
	now.end()
	return now.ended
}

// ErrNotRunning says that a program has not been started yet.
var ErrNotRunning = errors.New("it does not run yet")

// Check says why a program does not run; nil: it does.
func (g *Group) Check(name string) error {
	g.init()
	g.mu.Lock()
	now, ok := g.states[name]
	g.mu.Unlock()
	switch {
	case !ok:
		return ErrNotRunning
	case now.PID == 0:
		return errors.New(now.String())
	}
	return nil
}

// Wait waits, or until a program has started or ended, and reports whether ctx is not done then.
func (g *Group) Wait(ctx context.Context, longest time.Duration) bool {
	g.init()
	timer := time.NewTimer(longest)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-g.changed:
	case <-timer.C:
	}
	return ctx.Err() == nil
}

// String is the state for people.
func (s State) String() string {
	switch {
	case s.PID != 0 && s.Starts > 1:
		return fmt.Sprintf("running, started %d times; before that %s", s.Starts, s.Ended)
	case s.PID != 0:
		return "running"
	case s.Again.IsZero():
		return s.Ended
	}
	return s.Ended + "; it is started again at " + s.Again.UTC().Format(time.RFC3339)
}
