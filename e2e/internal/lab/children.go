package lab

import (
	"bytes"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// children are those of the first process of a machine: what it has started, and what is left to it by processes that have ended.
type children struct {
	mu      sync.Mutex
	started map[int]bool
	again   chan os.Signal
}

func newChildren() *children {
	c := &children{started: make(map[int]bool), again: make(chan os.Signal, 1)}
	signal.Notify(c.again, unix.SIGCHLD)
	return c
}

// start starts a command that wait is called for.
func (c *children) start(command *exec.Cmd) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := command.Start()
	if err == nil {
		c.started[command.Process.Pid] = true
	}
	return err
}

func (c *children) wait(command *exec.Cmd) *os.ProcessState {
	// How it ended is in its state.
	_ = command.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.started, command.Process.Pid)
	return command.ProcessState
}

// reap waits for what nobody else waits for, as long as the machine runs.
func (c *children) reap() {
	for range c.again {
		c.reapOrphans()
	}
}

func (c *children) reapOrphans() {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		text, readErr := os.ReadFile(file)
		if err != nil || readErr != nil {
			continue
		}
		// PID (NAME) STATE PARENT …
		_, after, _ := bytes.Cut(text[bytes.LastIndexByte(text, ')')+1:], []byte(" "))
		if !bytes.HasPrefix(after, []byte("Z 1 ")) {
			continue
		}
		c.mu.Lock()
		if !c.started[pid] {
			_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		}
		c.mu.Unlock()
	}
}
