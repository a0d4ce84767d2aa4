package footprint

import (
	"bufio"
	"errors"
	"fmt"
	"io"
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
	maps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return fmt.Errorf("footprint: %w", err)
	}
	defer maps.Close()
	var problems []error
	untouched, err := clean(maps, executable)
	if err != nil {
		problems = append(problems, fmt.Errorf("footprint: %w", err))
	}
	for _, mapped := range untouched {
		// By the bare call: the range is one of the kernel's, not memory of Go that a slice could stand for.
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, mapped.start, mapped.length, unix.MADV_DONTNEED); errno != 0 {
			problems = append(problems, fmt.Errorf("footprint: the mapping at %x: %w", mapped.start, errno))
		}
	}
	return errors.Join(problems...)
}

// mapping is a range of memory.
type mapping struct{ start, length uintptr }

// clean returns the mappings of the executable whose pages are all those of the file, by what smaps says, which is in the form of /proc/self/smaps, see
// proc_pid_smaps(5). That one cannot be written to is not enough: of an executable that is independent of its position, as distributions build them, the
// loader has written the addresses into parts that it made read-only afterwards, and with the pages of the file these would be lost.
func clean(smaps io.Reader, executable string) ([]mapping, error) {
	var found []mapping
	var last mapping
	ours, own, swapped := false, "", ""
	end := func() {
		if ours && own == none && swapped == none {
			found = append(found, last)
		}
	}
	lines := bufio.NewScanner(smaps)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		switch {
		case name == "Anonymous":
			own = strings.TrimSpace(value)
		case name == "Swap":
			swapped = strings.TrimSpace(value)
		case !strings.Contains(name, " "):
			// Another figure.
		default:
			end()
			last.start, last.length, ours = header(lines.Text(), executable)
			own, swapped = "", ""
		}
	}
	end()
	return found, lines.Err()
}

// none is how smaps says that there are no pages of a kind.
const none = "0 kB"

// header returns the range of a mapping of the executable that cannot be written to at present. The line is the first one of a mapping.
func header(line, executable string) (start, length uintptr, ok bool) {
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
