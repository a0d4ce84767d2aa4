package conformance

import (
	"os/exec"
	"runtime"
)

// spawner starts processes on its own thread. The kernel kills them when that thread ends, which is when the suite's process ends: a killed suite
// leaves no plugin behind.
type spawner struct {
	requests chan *spawn
	done     chan struct{}
}

type spawn struct {
	command *exec.Cmd
	err     chan error
}

func newSpawner() *spawner {
	s := &spawner{requests: make(chan *spawn), done: make(chan struct{})}
	go s.run()
	return s
}

func (s *spawner) start(command *exec.Cmd) error {
	request := &spawn{command, make(chan error, 1)}
	s.requests <- request
	return <-request.err
}

// close ends the thread. Every process must have ended before.
func (s *spawner) close() {
	close(s.requests)
	<-s.done
}

// run starts processes on one thread.
func (s *spawner) run() {
	defer close(s.done)
	// It is never unlocked: the thread ends with the goroutine.
	runtime.LockOSThread()
	for request := range s.requests {
		request.err <- request.command.Start()
	}
}
