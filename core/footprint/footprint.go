package footprint

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// GiveBack returns to the kernel what the process has no use for at present: free memory of the heap, and the pages of its executable, of which a start
// touches many that are never needed again (parsing and checking the parameters, making keys). What is needed comes back from the page cache with the
// next access, which costs microseconds a page: so this is for the moment when a process comes to rest, not for one at work.
func GiveBack() error {
	debug.FreeOSMemory()
	executable, err := os.Executable()
	if err != nil {
		return fmt.Errorf("footprint: %w", err)
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return fmt.Errorf("footprint: %w", err)
	}
	defer maps.Close()
	var problems []error
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		start, length, ok := clean(lines.Text(), executable)
		if !ok {
			continue
		}
		// By the bare call: the range is one of the kernel's, not memory of Go that a slice could stand for.
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, start, length, unix.MADV_DONTNEED); errno != 0 {
			problems = append(problems, fmt.Errorf("footprint: %s: %w", lines.Text(), errno))
		}
	}
	return errors.Join(problems...)
}

// clean returns the range of a mapping of the executable that cannot have been written to, so that its pages are those of the file. The line is one of
// /proc/self/maps, see proc_pid_maps(5).
func clean(line, executable string) (start, length uintptr, ok bool) {
	fields := strings.Fields(line)
	if len(fields) != 6 || fields[5] != executable || len(fields[1]) != 4 || fields[1][1] != '-' {
		return 0, 0, false
	}
	from, to, found := strings.Cut(fields[0], "-")
	first, err1 := strconv.ParseUint(from, 16, 64)
	end, err2 := strconv.ParseUint(to, 16, 64)
	if !found || err1 != nil || err2 != nil || end <= first {
		return 0, 0, false
	}
	return uintptr(first), uintptr(end - first), true
}
