package plugin

import (
	"fmt"
	"os"
	"syscall"

	"github.com/reeveproject/reeve/core/plugin/output"
)

// Exit is how the process of an instance ended.
type Exit struct {
	// Code is the status with which it exited; -1 if a signal ended it.
	Code int
	// Signal is the signal that ended it, or 0.
	Signal syscall.Signal
	// Unknown says that how it ended is not known: an earlier core launched it, and the kernel tells only the parent of a process. Code is -1 then.
	Unknown bool
	// Requested says that Stop was called before.
	Requested bool
	// OutOfMemory says that the kernel ended it since it used more memory than it may, or than the machine had, and Memory how much it may use, in bytes;
	// 0: as much as there is.
	OutOfMemory bool
	Memory      int64
	// Lines is what it last wrote to its log, at most 20 lines, oldest first. They hold no control characters.
	Lines []string
}

// String says how it ended and the line of its log that explains it best, such as
// "exited with status 2: panic: runtime error: index out of range".
func (e Exit) String() string {
	if line := output.Headline(e.Lines); line != "" {
		return e.status() + ": " + line
	}
	return e.status()
}

func (e Exit) status() string {
	if e.OutOfMemory {
		if e.Memory == 0 {
			return "ran out of memory (it has no limit: the machine had none left)"
		}
		return fmt.Sprintf("ran out of memory (its limit is %s)", sizeText(e.Memory))
	}
	if e.Unknown {
		return "ended; how is not known, since an earlier core launched it"
	}
	if e.Signal != 0 {
		return fmt.Sprintf("ended by signal %d (%s)", int(e.Signal), e.Signal)
	}
	return fmt.Sprintf("exited with status %d", e.Code)
}

func exitOf(state *os.ProcessState, lines []string) Exit {
	exit := Exit{Code: -1, Lines: lines}
	if state == nil {
		return exit
	}
	exit.Code = state.ExitCode()
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		exit.Signal = status.Signal()
	}
	return exit
}

// sizeText is a number of bytes for people: whole numbers only, since it is a limit.
func sizeText(bytes int64) string {
	for _, unit := range []struct {
		name string
		size int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if bytes >= unit.size && bytes%unit.size == 0 {
			return fmt.Sprintf("%d %s", bytes/unit.size, unit.name)
		}
	}
	return fmt.Sprintf("%d bytes", bytes)
}
