package target

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// leftRecord is the part of what a core leaves of an instance that says which process it is.
type leftRecord struct {
	Role   string `json:"role"`
	BootID string `json:"bootId"`
	PID    int    `json:"pid"`
	Start  uint64 `json:"start"`
}

// Left returns the roles, sorted, whose processes run although no core does, by what the last one recorded in a run directory. It returns none that the caller may not see.
func Left(run string) []string {
	// A core can run although its socket was removed.
	if _, held := lockHolder(filepath.Join(run, lockName)); held {
		return nil
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil
	}
	files, _ := filepath.Glob(filepath.Join(run, "instances", "*.json"))
	var roles []string
	for _, file := range files {
		var record leftRecord
		content, err := os.ReadFile(file)
		if err != nil || json.Unmarshal(content, &record) != nil || record.BootID != strings.TrimSpace(string(boot)) {
			continue
		}
		if record.PID > 1 && started(record.PID) == record.Start {
			roles = append(roles, record.Role)
		}
	}
	slices.Sort(roles)
	return slices.Compact(roles)
}

// LeftIn is Left for the node of a dev directory. Of a directory that was moved it returns none: its link to a run directory may lead to that of another cluster at the former place.
func LeftIn(dir string) []string {
	if former, _ := Former(dir); former != "" || Held(dir) {
		return nil
	}
	return Left(filepath.Join(dir, "run"))
}

// started returns when a process started, in ticks after the boot; 0: there is none.
func started(pid int) uint64 {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name, in parentheses, can hold anything.
	_, rest, _ := strings.Cut(string(content[strings.LastIndexByte(string(content), ')')+1:]), " ")
	fields := strings.Fields(rest)
	if len(fields) < 20 || fields[0] == "Z" {
		return 0
	}
	ticks, _ := strconv.ParseUint(fields[19], 10, 64)
	return ticks
}

// runOn says how many roles run on without a core, as the end of a sentence; empty: none.
func runOn(roles []string) string {
	switch len(roles) {
	case 0:
		return ""
	case 1:
		return ", and the process of its role " + roles[0] + " runs on without it"
	default:
		return fmt.Sprintf(", and %d role processes run on without it (%s)", len(roles), strings.Join(roles, ", "))
	}
}
