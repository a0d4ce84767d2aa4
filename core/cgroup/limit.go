package cgroup

import (
	"errors"
	"io/fs"
	"strconv"
)

const unbounded = "max"

// limit sets the limits of one hierarchy, as far as it has the controllers.
func (m member) limit(l Limits) error {
	var failures []error
	if m.has(memory) {
		if m.unified {
			failures = append(failures, m.memory(l.MemoryBytes))
		} else {
			failures = append(failures, m.memoryV1(l.MemoryBytes))
		}
	}
	if m.has(processes) {
		failures = append(failures, write(m.file("pids.max"), orUnbounded(l.Processes, unbounded)))
	}
	if m.has(cpu) {
		failures = append(failures, m.weight(l.CPUWeight))
	}
	return errors.Join(failures...)
}

func orUnbounded(bound int64, without string) string {
	if bound <= 0 {
		return without
	}
	return strconv.FormatInt(bound, 10)
}

// memory limits memory and swap together. Exceeding it kills the whole instance: what an instance that lost a process still does, nobody knows.
func (m member) memory(bytes int64) error {
	if err := write(m.file("memory.max"), orUnbounded(bytes, unbounded)); err != nil {
		return err
	}
	swap := unbounded
	if bytes > 0 {
		swap = "0"
	}
	for name, value := range map[string]string{"memory.swap.max": swap, "memory.oom.group": "1"} {
		if err := write(m.file(name), value); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// memoryV1 limits memory, and memory with swap if the kernel counts that. The second must never be less than the first, so the order depends on
// whether the limit grows.
func (m member) memoryV1(bytes int64) error {
	const file, withSwap = "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"
	value := orUnbounded(bytes, "-1")
	order := []string{file, withSwap}
	if write(m.file(file), value) != nil {
		order = []string{withSwap, file}
	}
	for _, name := range order {
		if err := write(m.file(name), value); err != nil && (name != withSwap || !errors.Is(err, fs.ErrNotExist)) {
			return err
		}
	}
	return nil
}

// weight sets the CPU share. In v1 it is 2 to 262144 with 1024 as default, in v2 1 to 10000 with 100.
func (m member) weight(weight int64) error {
	if weight <= 0 {
		weight = 100
	}
	if m.unified {
		return write(m.file("cpu.weight"), strconv.FormatInt(weight, 10))
	}
	return write(m.file("cpu.shares"), strconv.FormatInt(max(2, weight*1024/100), 10))
}
