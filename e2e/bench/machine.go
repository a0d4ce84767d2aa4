package bench

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine is what a figure cannot be read without.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Memory int64  `json:"memory_bytes"`
	Kernel string `json:"kernel"`
	// Filesystem is the type of the one that holds the files of both sides, Device what it lies on.
	Filesystem string `json:"filesystem"`
	Device     string `json:"device"`
	Go         string `json:"go"`
	Platform   string `json:"platform"`
	// User is "root" or "ordinary": as root every role has a user ID of its own.
	User string `json:"user"`
	// Load is the load average of one, five and fifteen minutes before the first measure.
	Load string `json:"load"`
	// Commit is what reeved was built from, as git describes it.
	Commit string `json:"commit"`
}

// LookAtMachine returns the facts of this machine. directory is where the measures keep their files.
func LookAtMachine(directory, commit string) (Machine, error) {
	m := Machine{
		CPU: "unknown", Cores: runtime.NumCPU(), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, User: "ordinary", Commit: commit,
	}
	if os.Geteuid() == 0 {
		m.User = "root"
	}
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if model, ok := field(info, "model name"); ok {
			m.CPU = model
		}
	}
	if info, err := os.ReadFile("/proc/meminfo"); err == nil {
		if total, ok := field(info, "MemTotal"); ok {
			var kib int64
			if _, err := fmt.Sscan(total, &kib); err == nil {
				m.Memory = kib << 10
			}
		}
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return m, fmt.Errorf("uname: %w", err)
	}
	m.Kernel = unix.ByteSliceToString(name.Sysname[:]) + " " + unix.ByteSliceToString(name.Release[:])
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return m, err
	}
	if fields := strings.Fields(string(load)); len(fields) >= 3 {
		m.Load = strings.Join(fields[:3], " ")
	}
	m.Filesystem, m.Device, err = filesystem(directory)
	return m, err
}

// field returns the value of the first line "name: value".
func field(text []byte, name string) (string, bool) {
	for line := range strings.Lines(string(text)) {
		key, value, ok := strings.Cut(line, ":")
		if ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value), true
		}
	}
	return "", false
}

// filesystem finds the mount that holds a directory: the one with the longest path above it, the last of those.
func filesystem(directory string) (kind, device string, err error) {
	directory, err = filepath.EvalSymlinks(directory)
	if err != nil {
		return "", "", err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", "", err
	}
	longest := ""
	for line := range bytes.Lines(mounts) {
		// 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
		before, after, ok := strings.Cut(string(line), " - ")
		fields, source := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(source) < 2 {
			continue
		}
		point := fields[4]
		if len(point) >= len(longest) && (point == "/" || directory == point || strings.HasPrefix(directory, point+"/")) {
			longest, kind, device = point, source[0], source[1]
		}
	}
	if kind == "" {
		return "", "", fmt.Errorf("no mount holds %s", directory)
	}
	return kind, device, nil
}
