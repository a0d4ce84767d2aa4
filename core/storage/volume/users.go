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

	"github.com/reeveproject/reeve/proto/mountinfo"
)

// maxUsers bounds the search: a longer list helps nobody.
const maxUsers = 256

// Place is a file system, or a directory of one, that may be in use.
type Place struct {
	// Device is the device number of the file system.
	Device uint64
	// Below is the directory; empty for the whole file system.
	Below string
}

// DirectoryPlace returns the place of a directory and everything below it.
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

// Users returns the processes that use a place: by an open or mapped file, a working or root directory, an executable, a bound Unix socket, or a
// mount in another mount namespace. Processes that end meanwhile are skipped.
func Users(place Place) ([]User, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("volume: %w", err)
	}
	s := &search{place: place, namespaces: map[string]bool{}, networks: map[string]map[string]string{}}
	// The core's own mounts do not count as users.
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
	// namespaces are the mount namespaces already searched. networks maps a network namespace to its bound sockets: path by inode.
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

// process looks at one process. It skips what it cannot read: the process has ended, or the caller may not look at it.
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
	mounts, err := mountinfo.Parse(content)
	if err != nil {
		return
	}
	for _, mount := range mounts {
		if mount.Device == s.place.Device && (s.place.Below == "" || s.below(mount.Root)) {
			s.add(pid, "mount", mount.Target)
		}
	}
}

// ownMounts finds directories of a place that are mounted elsewhere. They keep it busy like open files.
func (s *search) ownMounts() {
	mounts, err := Mounts()
	if err != nil {
		return
	}
	// Mounts list directories by their path within the file system.
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

// link looks at the target of a link in /proc.
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
	// A network file system that does not answer must not block the search, so the kernel's cached attributes have to do.
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

// inside reports whether path is directory or below it.
func inside(path, directory string) bool {
	return path == directory || directory == "/" || strings.HasPrefix(path, directory+"/")
}

// socketAt reports whether a bound Unix socket is at the place. Its path is the one given to bind, perhaps in another process's view of the file
// system. A socket that is not visible from here is skipped.
func (s *search) socketAt(path string) bool {
	if !strings.HasPrefix(path, "/") {
		return false
	}
	var stat unix.Stat_t
	return unix.Lstat(path, &stat) == nil && s.at(stat.Dev, path)
}

// bound returns the paths of the bound Unix sockets in a process's network namespace, by inode.
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

// ParseUnix parses /proc/PID/net/unix: the paths of bound sockets by inode.
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

// MappedFile is a file that is mapped into a process.
type MappedFile struct {
	Device uint64
	Path   string
}

// ParseMaps returns the distinct mapped files of /proc/PID/maps.
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
		device, ok := mountinfo.ParseDevice(string(fields[3]), 16)
		if file := (MappedFile{Device: device, Path: strings.TrimSuffix(string(line[start:]), "\n")}); ok && !known[file] {
			known[file] = true
			files = append(files, file)
		}
	}
	return files
}
