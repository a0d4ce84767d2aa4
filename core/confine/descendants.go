package confine

import (
	"strings"

	"github.com/prometheus/procfs"
)

// descendants returns the living descendants of a process.
func descendants(of int) (found []int) {
	processes, err := procfs.AllProcs()
	if err != nil {
		return nil
	}
	children := make(map[int][]int)
	for _, process := range processes {
		if parent, ok := parentOf(process.PID); ok {
			children[parent] = append(children[parent], process.PID)
		}
	}
	for next := children[of]; len(next) > 0; next = next[1:] {
		found = append(found, next[0])
		next = append(next, children[next[0]]...)
	}
	return found
}

// descends reports whether a process lives and descends from another one. It reads only the process's ancestors.
func descends(pid, of int) bool {
	for pid > 1 {
		parent, ok := parentOf(pid)
		if !ok {
			return false
		}
		if parent == of {
			return true
		}
		pid = parent
	}
	return false
}

// parentOf returns the parent of a living process.
func parentOf(pid int) (int, bool) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0, false
	}
	stat, err := process.Stat()
	// A process whose first thread has ended looks like a zombie, but lives while it has another thread.
	if err != nil || stat.State == "X" || stat.State == "Z" && stat.NumThreads == 1 {
		return 0, false
	}
	return stat.PPID, true
}

// commandLine returns the command line of a process, or its program's name in brackets if it erased the command line; empty if it has ended.
func commandLine(pid int) string {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return ""
	}
	words, _ := process.CmdLine()
	if line := strings.Join(words, " "); line != "" {
		return line
	}
	name, err := process.Comm()
	if err != nil {
		return ""
	}
	return "[" + name + "]"
}
