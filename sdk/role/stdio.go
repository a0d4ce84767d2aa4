package role

import (
	"os"
	"sync"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"
)

// stdio is the process's standard output and error as they were before go-plugin took them.
//
// After the handshake go-plugin puts pipes into os.Stdout and os.Stderr, which are read by a stream to the host. Nobody takes that stream: it would
// end with the core, and a role that writes to a full pipe stands still.
type stdio struct {
	stdout, stderr *os.File
	once           sync.Once
}

// restore makes standard error what it was, and standard output the same as standard error: the pipe that carried the handshake is nobody's any
// more. It must be called after the handshake and before any code of the role runs, since it changes os.Stdout and os.Stderr.
func (s *stdio) restore(log hclog.Logger) {
	s.once.Do(func() {
		os.Stdout, os.Stderr = s.stdout, s.stderr
		if err := unix.Dup3(unix.Stderr, unix.Stdout, 0); err != nil {
			log.Error("standard output could not be joined with standard error", "error", err)
		}
	})
}
