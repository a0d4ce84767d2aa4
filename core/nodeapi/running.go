package nodeapi

import (
	"sync"
	"time"
)

// running counts the calls that are being answered, so that a server that ends knows when nothing of what they used is used any more. Calls that are answered
// last are counted by themselves: they wait for what happens after all others have ended.
type running struct {
	mu       sync.Mutex
	calls    int
	answers  int
	closing  bool
	idle     chan struct{} // closed when no call runs any more, but those that are answered last
	answered chan struct{} // closed when none of those is left either
	asked    bool          // whether there was one of those when closing began
}

func newRunning() *running {
	return &running{idle: make(chan struct{}), answered: make(chan struct{})}
}

// begin counts a call until the function that it returns is called; false: the server ends and takes no calls any more.
func (r *running) begin(last bool) (end func(), ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing {
		return nil, false
	}
	count := &r.calls
	if last {
		count = &r.answers
	}
	*count++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		*count--
		r.look()
	}, true
}

// close takes no calls any more.
func (r *running) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closing, r.asked = true, r.answers > 0
	r.look()
}

// ends says whether calls are taken no more.
func (r *running) ends() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closing
}

// look tells what has ended. mu is held.
func (r *running) look() {
	if !r.closing || r.calls > 0 {
		return
	}
	closeOnce(r.idle)
	if r.answers == 0 {
		closeOnce(r.answered)
	}
}

// closeOnce closes a channel that may be closed.
func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

// end ends the servers and returns when no call runs any more.
func (s *Server) end() {
	s.running.close()
	var graceful sync.WaitGroup
	for _, d := range s.doors {
		d.listener.close()
		graceful.Go(d.server.GracefulStop)
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		graceful.Wait()
	}()
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	select {
	case <-stopped:
		return
	case <-grace.C:
	}
	select {
	case <-s.running.idle:
	default:
		s.config.Log.Info("calls of the node's API did not end in time and are cut off", "grace", stopGrace)
	}
	for _, d := range s.doors {
		d.listener.cutOff()
	}
	select {
	case <-stopped:
		return
	case <-s.running.answered:
	}
	if s.running.asked {
		// The answer was just given, and is on its way.
		grace.Reset(answerGrace)
		select {
		case <-stopped:
			return
		case <-grace.C:
		}
	}
	for _, d := range s.doors {
		d.server.Stop()
	}
	<-stopped
}
