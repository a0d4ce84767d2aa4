package conformance

import (
	"bufio"
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of times in /proc/PID/stat. The kernel always shows hundredths of a second.
const clockTick = 10 * time.Millisecond

// holding is what processes hold.
type holding struct {
	files, threads int
	memory         int64 // anonymous memory in bytes
}

// holdingOf returns what a process and its descendants hold.
func (p *process) holdingOf() (now holding) {
	for _, pid := range p.family() {
		at := filepath.Join("/proc", strconv.Itoa(pid))
		files, _ := os.ReadDir(filepath.Join(at, "fd"))
		threads, _ := os.ReadDir(filepath.Join(at, "task"))
		now.files += len(files)
		now.threads += len(threads)
		now.memory += statusOf(at, "RssAnon:") + statusOf(at, "RssShmem:")
	}
	return now
}

// family returns the process and its descendants.
func (p *process) family() []int { return append([]int{p.pid()}, p.descendants()...) }

// statusOf returns a number of bytes in /proc/PID/status; 0 if the process has ended.
func statusOf(at, name string) int64 {
	content, _ := os.ReadFile(filepath.Join(at, "status"))
	for line := range strings.Lines(string(content)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			kilobytes, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return kilobytes << 10
		}
	}
	return 0
}

// usedTime returns the processor time of a process including its ended threads: by the kernel's ticks, or by the finer count of the living threads if
// that is more.
func usedTime(pid int) time.Duration {
	had, _ := processorTime(pid)
	fields := statFields(pid)
	if len(fields) < 13 {
		return had
	}
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return max(had, time.Duration(user+system)*clockTick)
}

// usedTimes sums usedTime over the process and its descendants.
func (p *process) usedTimes() (used time.Duration) {
	for _, pid := range p.family() {
		used += usedTime(pid)
	}
	return used
}

// statFields returns the fields of /proc/PID/stat from the state on; the name before them may contain anything. nil if the process has ended.
func statFields(pid int) []string {
	content, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return strings.Fields(string(content[bytes.LastIndexByte(content, ')')+1:]))
}

// listening is a socket on which a process accepts connections.
type listening struct {
	// address is the TCP address. path is the Unix socket's, beginning with '@' for an abstract one.
	address netip.AddrPort
	path    string
}

// listeners returns the sockets on which the process and its descendants listen.
func (p *process) listeners() (found []listening) {
	for _, pid := range p.family() {
		at := filepath.Join("/proc", strconv.Itoa(pid))
		own := make(map[string]bool)
		links, _ := filepath.Glob(filepath.Join(at, "fd", "*"))
		for _, link := range links {
			target, _ := os.Readlink(link)
			if inode, ok := strings.CutPrefix(target, "socket:["); ok {
				own[strings.TrimSuffix(inode, "]")] = true
			}
		}
		for _, table := range []string{"tcp", "tcp6"} {
			eachField(filepath.Join(at, "net", table), func(fields []string) {
				const listens = "0A"
				if len(fields) > 9 && fields[3] == listens && own[fields[9]] {
					found = append(found, listening{address: addressOf(fields[1])})
				}
			})
		}
		eachField(filepath.Join(at, "net", "unix"), func(fields []string) {
			const accepts = 1 << 16
			if len(fields) < 7 || !own[fields[6]] {
				return
			}
			if flags, _ := strconv.ParseUint(fields[3], 16, 64); flags&accepts == 0 {
				return
			}
			path := ""
			if len(fields) > 7 {
				path = fields[7]
			}
			found = append(found, listening{path: path})
		})
	}
	return found
}

// eachField yields the fields of every line but the first of a kernel table.
func eachField(path string, yield func([]string)) {
	file, err := os.Open(path)
	if err != nil {
		return // the process has ended, or there is no such protocol
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	for first := true; lines.Scan(); first = false {
		if !first {
			yield(strings.Fields(lines.Text()))
		}
	}
}

// addressOf parses an address of the kernel's tables: 32-bit words in host order, which is little-endian wherever Reeve runs, and a port.
func addressOf(text string) netip.AddrPort {
	digits, port, _ := strings.Cut(text, ":")
	number, _ := strconv.ParseUint(port, 16, 16)
	var bytes []byte
	for at := 0; at+8 <= len(digits); at += 8 {
		word, _ := strconv.ParseUint(digits[at:at+8], 16, 32)
		bytes = append(bytes, byte(word), byte(word>>8), byte(word>>16), byte(word>>24))
	}
	address, _ := netip.AddrFromSlice(bytes)
	return netip.AddrPortFrom(address.Unmap(), uint16(number))
}

// written returns the regular files that the process and its descendants have open for writing.
func (p *process) written() (found []string) {
	for _, pid := range p.family() {
		links, _ := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "fd", "*"))
		for _, link := range links {
			target, err := os.Readlink(link)
			info, statErr := os.Stat(link)
			if err != nil || statErr != nil || !info.Mode().IsRegular() || !strings.HasPrefix(target, "/") || strings.HasPrefix(target, "/memfd:") {
				continue
			}
			content, _ := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%s", pid, filepath.Base(link)))
			for line := range strings.Lines(string(content)) {
				if text, ok := strings.CutPrefix(line, "flags:"); ok {
					if flags, _ := strconv.ParseUint(strings.TrimSpace(text), 8, 64); flags&uint64(os.O_WRONLY|os.O_RDWR) != 0 {
						found = append(found, target)
					}
				}
			}
		}
	}
	return found
}
