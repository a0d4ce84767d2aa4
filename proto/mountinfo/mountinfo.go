package mountinfo

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Mount is a line of the list.
type Mount struct {
	// Device is the device number of the file system.
	Device uint64
	// Root is the mounted directory of the file system, Target the mount point.
	Root, Target string
	// Options are the mount's options. Type, Source and Super, its options, are the file system's.
	Options      []string
	Type, Source string
	Super        []string
}

// Own returns the mounts that this process sees, oldest first.
func Own() ([]Mount, error) {
	content, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return Parse(content)
}

// On returns the mount that a path lies on; nil if none of them is. A path that is not there lies where its nearest parent does.
func On(mounts []Mount, path string) *Mount {
	real, err := filepath.EvalSymlinks(path)
	for err != nil && path != filepath.Dir(path) {
		path = filepath.Dir(path)
		real, err = filepath.EvalSymlinks(path)
	}
	var on *Mount
	for i, mount := range mounts {
		within := real == mount.Target || strings.HasPrefix(real, strings.TrimSuffix(mount.Target, "/")+"/")
		// Of two at the same directory the later one is on top.
		if within && (on == nil || len(mount.Target) >= len(on.Target)) {
			on = &mounts[i]
		}
	}
	return on
}

// Parse parses /proc/PID/mountinfo. A malformed line is an error: a mount that was skipped would count as not mounted.
func Parse(content []byte) ([]Mount, error) {
	var mounts []Mount
	lines := bufio.NewScanner(bytes.NewReader(content))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		mount, ok := parseMount(lines.Text())
		if !ok {
			return nil, fmt.Errorf("the kernel's list of mounts has a line that this reeved cannot parse: %.200q", lines.Text())
		}
		mounts = append(mounts, mount)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the kernel's list of mounts: %w", err)
	}
	return mounts, nil
}

func parseMount(line string) (Mount, bool) {
	// 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
	before, after, found := strings.Cut(line, " - ")
	fields, rest := strings.Split(before, " "), strings.Split(after, " ")
	if !found || len(fields) < 6 || len(rest) < 2 {
		return Mount{}, false
	}
	device, ok := ParseDevice(fields[2], 10)
	if !ok {
		return Mount{}, false
	}
	return Mount{
		Device: device, Root: unescape(fields[3]), Target: unescape(fields[4]), Options: strings.Split(fields[5], ","),
		Type: unescape(rest[0]), Source: unescape(rest[1]), Super: strings.Split(strings.Join(rest[2:], " "), ","),
	}, true
}

// ParseDevice parses "major:minor".
func ParseDevice(text string, base int) (uint64, bool) {
	major, minor, found := strings.Cut(text, ":")
	a, errA := strconv.ParseUint(major, base, 32)
	b, errB := strconv.ParseUint(minor, base, 32)
	return unix.Mkdev(uint32(a), uint32(b)), found && errA == nil && errB == nil
}

// unescape decodes the kernel's octal escapes of blanks, tabs, newlines and backslashes, such as \040.
func unescape(text string) string {
	if !strings.Contains(text, `\`) {
		return text
	}
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+3 < len(text) {
			if code, err := strconv.ParseUint(text[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(code))
				i += 3
				continue
			}
		}
		out.WriteByte(text[i])
	}
	return out.String()
}
