package volume

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxUsers is how many users of a place are looked for: more help nobody.
const maxUsers = 256

// Place is where something may be open: on a file system, or below a directory of one.
type Place struct {
	// Device is the number of the file system's device.
	Device uint64
	// Below is the directory; empty: the whole file system.
	Below string
}

// DirectoryPlace returns the place of a directory and all below it.
func DirectoryPlace(path string) (Place, error) {
	real, err := resolve(path)
	if err != nil {
		return Place{}, err
	}
	var stat unix.Stat_t
	if err := unix.Stat(real, &stat); err != nil {
		return Place{}, fmt.Errorf("volume: %s: %w", path, err)
	}
	return Place{Device: stat.Dev, Below: real}, nil
}

// Users returns which processes of the machine have something open there: a file, a directory they are in or take for the root, an executable, a mapped
// file, a Unix socket that is bound there, or a mount of the file system in a mount namespace that is not the core's. Processes that end meanwhile are
// passed over.
func Users(place Place) ([]User, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("volume: %w", err)
	}
	s := &search{place: place, namespaces: map[string]bool{}, networks: map[string]map[string]string{}}
	// The core's own mounts are the volume's, and are not its users.
	if own, err := os.Readlink("/proc/self/ns/mnt"); err == nil {
		s.namespaces[own] = true
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || !entry.IsDir() {
			continue
		}
		if s.process(pid); len(s.found) >= maxUsers {
			break
		}
	}
	if place.Below != "" {
		s.ownMounts()
	}
	return s.found, nil
}

type search struct {
	place Place
	// namespaces are the mount namespaces that were looked at, and networks the bound sockets of network namespaces: path by inode.
	namespaces map[string]bool
	networks   map[string]map[string]string
	found      []User
}

func (s *search) add(pid int, use, path string) {
	command, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	user := User{PID: pid, Command: strings.TrimSpace(string(command)), Path: path, Use: use}
	for _, other := range s.found {
		if other == user {
			return
		}
	}
	s.found = append(s.found, user)
}

// process looks at one process. What cannot be read is of a process that ended, or of one that the caller may not look at.
func (s *search) process(pid int) {
	base := fmt.Sprintf("/proc/%d/", pid)
	for _, one := range []struct{ name, use string }{{"cwd", "working directory"}, {"root", "root directory"}, {"exe", "executable"}} {
		s.link(pid, base+one.name, one.use)
	}
	descriptors, err := os.ReadDir(base + "fd")
	if err == nil {
		for _, descriptor := range descriptors {
			s.link(pid, base+"fd/"+descriptor.Name(), "open")
		}
	}
	if content, err := os.ReadFile(base + "maps"); err == nil {
		for _, file := range ParseMaps(content) {
			if s.at(file.Device, file.Path) {
				s.add(pid, "mapped", file.Path)
			}
		}
	}
	namespace, err := os.Readlink(base + "ns/mnt")
	if err != nil || s.namespaces[namespace] {
		return
	}
	s.namespaces[namespace] = true
	content, err := os.ReadFile(base + "mountinfo")
	if err != nil {
		return
	}
	mounts, err := ParseMounts(content)
	if err != nil {
		return
	}
	for _, mount := range mounts {
		if mount.Device == s.place.Device && (s.place.Below == "" || s.below(mount.Root)) {
			s.add(pid, "mount", mount.Target)
		}
	}
}

// ownMounts finds directories below a place that are mounted elsewhere: they hold it as open files do.
func (s *search) ownMounts() {
	mounts, err := Mounts()
	if err != nil {
		return
	}
	// The path of the place within its file system is the one by which its directories are listed.
	root := s.place.Below
	longest := -1
	for _, mount := range mounts {
		if inside(s.place.Below, mount.Target) && mount.Device == s.place.Device && len(mount.Target) > longest {
			relative, _ := filepath.Rel(mount.Target, s.place.Below)
			root, longest = filepath.Join(mount.Root, relative), len(mount.Target)
		}
	}
	for _, mount := range mounts {
		if mount.Device == s.place.Device && inside(mount.Root, root) {
			s.add(os.Getpid(), "mount", mount.Target)
		}
	}
}

// link looks at what a link in /proc stands for.
func (s *search) link(pid int, link, use string) {
	path, err := os.Readlink(link)
	if err != nil {
		return
	}
	if inode, found := strings.CutPrefix(path, "socket:["); found {
		if bound, found := s.bound(pid)[strings.TrimSuffix(inode, "]")]; found && s.socketAt(bound) {
			s.add(pid, "socket", bound)
		}
		return
	}
	// A file system of the network that does not answer must not hold up the search: what the kernel knows by itself is enough.
	var stat unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, link, unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &stat); err != nil {
		return
	}
	if s.at(unix.Mkdev(stat.Dev_major, stat.Dev_minor), path) {
		s.add(pid, use, path)
	}
}

func (s *search) at(device uint64, path string) bool {
	return device == s.place.Device && (s.place.Below == "" || s.below(path))
}

func (s *search) below(path string) bool {
	return inside(strings.TrimSuffix(path, " (deleted)"), s.place.Below)
}

// inside reports whether a path is a directory or below it.
func inside(path, directory string) bool {
	return path == directory || directory == "/" || strings.HasPrefix(path, directory+"/")
}

// socketAt reports whether a bound Unix socket is at the place. Its path is as it was given to bind, so it may be another process's view; one that is not
// seen from here is not named.
func (s *search) socketAt(path string) bool {
	if !strings.HasPrefix(path, "/") {
		return false
	}
	var stat unix.Stat_t
	return unix.Lstat(path, &stat) == nil && s.at(stat.Dev, path)
}

// bound returns the paths of the Unix sockets in the network namespace of a process by their inodes.
func (s *search) bound(pid int) map[string]string {
	namespace, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return nil
	}
	paths, known := s.networks[namespace]
	if !known {
		content, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/unix", pid))
		if err == nil {
			paths = ParseUnix(content)
		}
		s.networks[namespace] = paths
	}
	return paths
}

// ParseUnix reads what /proc/PID/net/unix holds: the paths of bound sockets by their inodes.
func ParseUnix(content []byte) map[string]string {
	paths := map[string]string{}
	for line := range bytes.Lines(content) {
		// Num RefCount Protocol Flags Type St Inode Path
		fields := strings.SplitN(strings.TrimSuffix(string(line), "\n"), " ", 2)
		rest := strings.TrimLeft(strings.Join(fields[1:], ""), " ")
		for range 5 {
			_, rest, _ = strings.Cut(rest, " ")
			rest = strings.TrimLeft(rest, " ")
		}
		if inode, path, found := strings.Cut(rest, " "); found && path != "" {
			paths[inode] = path
		}
	}
	return paths
}

// MappedFile is a file that a process has mapped.
type MappedFile struct {
	Device uint64
	Path   string
}

// ParseMaps reads the mapped files out of what /proc/PID/maps holds, each once.
func ParseMaps(content []byte) []MappedFile {
	var files []MappedFile
	known := map[MappedFile]bool{}
	for line := range bytes.Lines(content) {
		// 00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/dbus-daemon
		start := bytes.IndexByte(line, '/')
		if start < 0 {
			continue
		}
		fields := bytes.Fields(line[:start])
		if len(fields) != 5 {
			continue
		}
		device, ok := parseDevice(string(fields[3]), 16)
		if file := (MappedFile{Device: device, Path: strings.TrimSuffix(string(line[start:]), "\n")}); ok && !known[file] {
			known[file] = true
			files = append(files, file)
		}
	}
	return files
}
