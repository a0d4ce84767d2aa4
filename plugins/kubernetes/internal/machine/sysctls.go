package machine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// sysctlRoot is where the kernel has its parameters.
const sysctlRoot = "/proc/sys"

// sysctlVersion is that of the file.
const sysctlVersion = 1

// Sysctls sets parameters of the kernel, and remembers in a file what they were. Names are paths below /proc/sys ("net/ipv4/ip_forward"), since the names of interfaces may have dots. Those of net are of
// the network namespace of the calling thread, and put back in that one only; nothing is put back after a boot. What another has changed meanwhile stays as it is.
type Sysctls struct {
	// File is where is remembered. Its directory must be there.
	File string
}

// record is the file.
type record struct {
	Version int `json:"version"`
	// Boot is the kernel's ID of the boot in which this was written.
	Boot   string   `json:"boot"`
	Former []former `json:"former"`
}

// former is one parameter, as it was.
type former struct {
	Name string `json:"name"`
	// Namespace is the network namespace of it; empty: it is the machine's.
	Namespace string `json:"namespace,omitempty"`
	Was       string `json:"was"`
	Set       string `json:"set"`
	// With are those which the kernel sets together with it, as they were.
	With map[string]string `json:"with,omitempty"`
}

// carried are the parameters with which the kernel sets others, as patterns of file names.
var carried = map[string][]string{
	"net/ipv4/ip_forward":          {"net/ipv4/conf/*/forwarding", "net/ipv4/conf/all/accept_redirects"},
	"net/ipv4/conf/all/forwarding": {"net/ipv4/ip_forward", "net/ipv4/conf/*/forwarding", "net/ipv4/conf/all/accept_redirects"},
	"net/ipv6/conf/all/forwarding": {"net/ipv6/conf/*/forwarding"},
}

// Set sets parameters. What each of them was is in the file before it is changed; one that already has its value is left alone.
func (s Sysctls) Set(values map[string]string) error {
	// The file tells of the namespace of this thread, and the values are to be of the same.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	known, err := s.read()
	if err != nil {
		return err
	}
	order, changed := make([]string, 0, len(values)), false
	for _, name := range slices.SortedFunc(maps.Keys(values), inOrder) {
		if !validSysctl(name) {
			return fmt.Errorf("machine: %q is no name of a sysctl", name)
		}
		is, err := readSysctl(name)
		if err != nil {
			return fmt.Errorf("machine: %w", err)
		}
		value := normal(values[name])
		if is == value {
			continue
		}
		order = append(order, name)
		namespace, err := namespaceOf(name)
		if err != nil {
			return fmt.Errorf("machine: %w", err)
		}
		changed = true
		if i := slices.IndexFunc(known.Former, func(f former) bool { return f.Name == name && f.Namespace == namespace }); i >= 0 {
			if is != known.Former[i].Set {
				// Another has changed it since, and so it is that one's value that is put back.
				known.Former[i].Was = is
			}
			known.Former[i].Set = value
			continue
		}
		with, err := withSysctl(name)
		if err != nil {
			return fmt.Errorf("machine: %w", err)
		}
		known.Former = append(known.Former, former{Name: name, Namespace: namespace, Was: is, Set: value, With: with})
	}
	if !changed {
		return nil
	}
	if err := s.write(known); err != nil {
		return err
	}
	for _, name := range order {
		if err := writeSysctl(name, normal(values[name])); err != nil {
			return fmt.Errorf("machine: %w", err)
		}
	}
	return nil
}

// Restore puts back what Set has changed, and removes the file. What fails stays in the file.
func (s Sysctls) Restore() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	known, err := s.read()
	if err != nil {
		return err
	}
	var problems []error
	left := record{Version: known.Version, Boot: known.Boot}
	for _, f := range slices.Backward(known.Former) {
		if err := f.restore(); err != nil {
			problems = append(problems, err)
			left.Former = append(left.Former, f)
		}
	}
	slices.Reverse(left.Former)
	if len(left.Former) > 0 {
		problems = append(problems, s.write(left))
	} else if err := os.Remove(s.File); err == nil {
		problems = append(problems, syncDirectory(filepath.Dir(s.File)))
	} else if !errors.Is(err, fs.ErrNotExist) {
		problems = append(problems, err)
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("machine: put sysctls back: %w", err)
	}
	return nil
}

func (f former) restore() error {
	namespace, err := namespaceOf(f.Name)
	if err != nil {
		return err
	}
	if namespace != f.Namespace {
		return nil // the value belongs to another network namespace
	}
	is, err := readSysctl(f.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // of an interface that is gone
	}
	if err != nil {
		return err
	}
	if is != f.Set {
		return nil
	}
	if err := writeSysctl(f.Name, f.Was); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(f.With)) {
		if is, err := readSysctl(name); errors.Is(err, fs.ErrNotExist) || err == nil && is == f.With[name] {
			continue
		}
		if err := writeSysctl(name, f.With[name]); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// inOrder sorts parameters that change others to the end. accept_ra must be 2 before IPv6 forwarding is enabled, or the kernel drops its default routers at once.
func inOrder(a, b string) int {
	_, lateA := carried[a]
	_, lateB := carried[b]
	switch {
	case lateA == lateB:
		return strings.Compare(a, b)
	case lateA:
		return 1
	default:
		return -1
	}
}

// withSysctl reads what the kernel will set together with a parameter.
func withSysctl(name string) (map[string]string, error) {
	var with map[string]string
	for _, pattern := range carried[name] {
		paths, err := filepath.Glob(filepath.Join(sysctlRoot, pattern))
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			other, err := filepath.Rel(sysctlRoot, path)
			if err != nil {
				return nil, err
			}
			if other == name {
				continue
			}
			value, err := readSysctl(other)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, err
			}
			if with == nil {
				with = make(map[string]string)
			}
			with[other] = value
		}
	}
	return with, nil
}

func (s Sysctls) read() (record, error) {
	boot, err := bootID()
	if err != nil {
		return record{}, fmt.Errorf("machine: %w", err)
	}
	content, err := os.ReadFile(s.File)
	if errors.Is(err, fs.ErrNotExist) {
		return record{Version: sysctlVersion, Boot: boot}, nil
	}
	if err != nil {
		return record{}, fmt.Errorf("machine: %w", err)
	}
	known, err := parseRecord(content)
	if err != nil {
		return record{}, fmt.Errorf("machine: the file %s, which says what sysctls were, is damaged (%w): remove it, and set them yourself if need be", s.File, err)
	}
	if known.Boot != boot {
		return record{Version: sysctlVersion, Boot: boot}, nil
	}
	return known, nil
}

func (s Sysctls) write(known record) error {
	content, err := json.MarshalIndent(known, "", "  ")
	if err == nil {
		err = renameio.WriteFile(s.File, append(content, '\n'), 0o600, renameio.WithTempDir(filepath.Dir(s.File)))
	}
	if err == nil {
		err = syncDirectory(filepath.Dir(s.File))
	}
	if err != nil {
		return fmt.Errorf("machine: remember what sysctls were: %w", err)
	}
	return nil
}

func parseRecord(content []byte) (record, error) {
	var known record
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&known); err != nil {
		return record{}, err
	}
	if known.Version != sysctlVersion {
		return record{}, fmt.Errorf("it has version %d, and this program knows version %d", known.Version, sysctlVersion)
	}
	for _, f := range known.Former {
		for _, name := range append(slices.Collect(maps.Keys(f.With)), f.Name) {
			if !validSysctl(name) {
				return record{}, fmt.Errorf("%q is no name of a sysctl", name)
			}
		}
	}
	return known, nil
}

func validSysctl(name string) bool {
	return filepath.IsLocal(name) && filepath.Clean(name) == name && name != "." && !strings.ContainsRune(name, 0)
}

func readSysctl(name string) (string, error) {
	value, err := os.ReadFile(filepath.Join(sysctlRoot, name))
	if err != nil {
		return "", fmt.Errorf("the sysctl %s: %w", name, err)
	}
	return normal(string(value)), nil
}

func writeSysctl(name, value string) error {
	file, err := os.OpenFile(filepath.Join(sysctlRoot, name), os.O_WRONLY, 0)
	if err == nil {
		_, err = file.WriteString(value)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		return fmt.Errorf("set the sysctl %s to %q: %w", name, value, err)
	}
	return nil
}

// normal is a value with its fields set apart as everybody may write them.
func normal(value string) string { return strings.Join(strings.Fields(value), " ") }

// namespaceOf tells the network namespace of this thread from every other one since the boot, for parameters of net.
func namespaceOf(name string) (string, error) {
	if !strings.HasPrefix(name, "net/") {
		return "", nil
	}
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("the network namespace of this process: %w", err)
	}
	defer func() { _ = unix.Close(socket) }()
	cookie, err := unix.GetsockoptUint64(socket, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err == nil {
		return "cookie " + strconv.FormatUint(cookie, 10), nil
	}
	// A kernel before 5.14: the number of an inode is given again, but not while the namespace is there.
	var found unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &found); err != nil {
		return "", fmt.Errorf("the network namespace of this process: %w", err)
	}
	return "inode " + strconv.FormatUint(found.Ino, 10), nil
}

func bootID() (string, error) {
	value, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return normal(string(value)), err
}

func syncDirectory(path string) error {
	directory, err := os.Open(path)
	if err != nil {
		return err
	}
	if err := directory.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) {
		return errors.Join(fmt.Errorf("sync %s: %w", path, err), directory.Close())
	}
	return directory.Close()
}
