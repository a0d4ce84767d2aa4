package footprint

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime/debug"
	"strconv"

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
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return fmt.Errorf("footprint: %w", err)
	}
	var problems []error
	for _, mapped := range clean(smaps, executable) {
		// By the bare call: the range is one of the kernel's, not memory of Go that a slice could stand for.
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, mapped.start, mapped.length, unix.MADV_DONTNEED); errno != 0 {
			problems = append(problems, fmt.Errorf("footprint: the mapping at %x: %w", mapped.start, errno))
		}
	}
	return errors.Join(problems...)
}

// mapping is a range of memory.
type mapping struct{ start, length uintptr }

var (
	// readOnly matches a mapping that cannot be written to at present, with its figures.
	readOnly = regexp.MustCompile(`(?m)^([0-9a-f]+)-([0-9a-f]+) .-.. \S+ \S+ \S+ +(\S+)\n((?:\w+:.*\n)*)`)
	// noneOfItsOwn match the figures of one that has no pages of its own.
	noneOfItsOwn = []*regexp.Regexp{regexp.MustCompile(`(?m)^Anonymous: +0 kB$`), regexp.MustCompile(`(?m)^Swap: +0 kB$`)}
)

// clean returns the mappings of the executable whose pages are all those of the file, by what smaps says, which is in the form of /proc/self/smaps, see
// proc_pid_smaps(5). That one cannot be written to is not enough: of an executable that is independent of its position, as distributions build them, the
// loader has written the addresses into parts that it made read-only afterwards, and with the pages of the file these would be lost.
func clean(smaps []byte, executable string) (found []mapping) {
	for _, fields := range readOnly.FindAllSubmatch(smaps, -1) {
		from, err1 := strconv.ParseUint(string(fields[1]), 16, 64)
		end, err2 := strconv.ParseUint(string(fields[2]), 16, 64)
		if string(fields[3]) == executable && noneOfItsOwn[0].Match(fields[4]) && noneOfItsOwn[1].Match(fields[4]) && err1 == nil && err2 == nil && end > from {
			found = append(found, mapping{uintptr(from), uintptr(end - from)})
		}
	}
	return found
}
