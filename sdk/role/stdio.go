package role

import (
	"os"
	"sync"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"
)

// stdio is the process's standard output and error before go-plugin replaced them.
//
// After the handshake go-plugin puts pipes into os.Stdout and os.Stderr, and a stream to the host reads them. Nobody uses that stream: it would end
// with the core, and a role that writes to a full pipe would block.
type stdio struct {
	stdout, stderr *os.File
	once           sync.Once
}

// restore restores standard error and joins standard output with it, because nobody reads the pipe of the handshake any more. It changes os.Stdout
// and os.Stderr, so it must be called after the handshake and before any code of the role.
func (s *stdio) restore(log hclog.Logger) {
	s.once.Do(func() {
		os.Stdout, os.Stderr = s.stdout, s.stderr
		if err := unix.Dup3(unix.Stderr, unix.Stdout, 0); err != nil {
			log.Error("cannot join standard output with standard error", "error", err)
		}
	})
}
