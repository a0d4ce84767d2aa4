package confine

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// descendants returns the living descendants of a process.
func descendants(of int) (found []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	children := make(map[int][]int)
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if parent, ok := parentOf(pid); ok {
			children[parent] = append(children[parent], pid)
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
	content, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, false
	}
	// The second field is the program's name and may contain spaces and parentheses. Then come the state, the parent and, 16 fields later, the number
	// of threads.
	fields := strings.Fields(string(content[bytes.LastIndexByte(content, ')')+1:]))
	if len(fields) < 18 {
		return 0, false
	}
	// A process whose first thread has ended looks like a zombie, but lives while it has another thread.
	if fields[0] == "X" || fields[0] == "Z" && fields[17] == "1" {
		return 0, false
	}
	parent, err := strconv.Atoi(fields[1])
	return parent, err == nil
}

// commandLine returns the command line of a process, or its program's name in brackets if it erased the command line; empty if it has ended.
func commandLine(pid int) string {
	directory := filepath.Join("/proc", strconv.Itoa(pid))
	content, _ := os.ReadFile(filepath.Join(directory, "cmdline"))
	if line := bytes.ReplaceAll(bytes.TrimRight(content, "\x00"), []byte{0}, []byte{' '}); len(line) > 0 {
		return string(line)
	}
	name, err := os.ReadFile(filepath.Join(directory, "comm"))
	if err != nil {
		return ""
	}
	return "[" + string(bytes.TrimSpace(name)) + "]"
}
