package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/reeveproject/reeve/proto/remit"
)

// access is what a process may do with a path and what is below it. Every listed path can be reached.
type access uint8

const (
	reads access = 1 << iota
	writes
	executes
	// devices may be opened.
	devices
)

// place is a path that a process can reach.
type place struct {
	// path has no symbolic links. names are other paths that lead to it through links.
	path   string
	names  []string
	access access
}

// everyoneReads are paths that every role may read if they exist: what a static program needs to know its machine, time zones and trusted CAs. /etc
// is shown as a directory, so that a replaced file is seen.
var everyoneReads = []string{
	"/etc", "/usr/share/zoneinfo", "/usr/share/ca-certificates", "/usr/local/share/ca-certificates", "/usr/share/pki", "/var/lib/ca-certificates",
}

// resolvers names the DNS servers. It is often a link to another directory, in which a daemon replaces it.
const resolvers = "/etc/resolv.conf"

// harmless are the devices that every role has.
var harmless = []string{"null", "zero", "full", "random", "urandom"}

// places lists what a process can reach, parents first. /proc and the devices are not among them.
func places(p Policy) ([]place, error) {
	byPath := make(map[string]*place)
	add := func(name string, access access) error {
		path, err := filepath.EvalSymlinks(name)
		if err != nil {
			return err
		}
		at := byPath[path]
		if at == nil {
			at = &place{path: path}
			byPath[path] = at
		}
		at.access |= access
		if name != path && !slices.Contains(at.names, name) {
			at.names = append(at.names, name)
		}
		return nil
	}
	for _, path := range everyoneReads {
		if err := add(path, reads); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	// Not without a network: the resolver daemon's sockets are in that directory, and one of them may query other machines.
	if target, err := filepath.EvalSymlinks(resolvers); err == nil && filepath.Dir(target) != "/" && !p.unixOnly() {
		if err := add(filepath.Dir(target), reads); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	for _, path := range p.Passages {
		if err := add(path, 0); err != nil {
			return nil, err
		}
	}
	for _, path := range p.Private {
		if err := add(path, reads|writes); err != nil {
			return nil, err
		}
	}
	for _, granted := range []struct {
		grant  string
		paths  []string
		access access
	}{
		{remit.ReadPath, p.Remit.Read, reads},
		{remit.WritePath, p.Remit.Write, reads | writes},
		{remit.ExecutePath, p.Remit.Execute, reads | executes},
	} {
		for _, path := range granted.paths {
			err := ownedLink(path, p)
			if err == nil {
				err = add(path, granted.access|deviceAccess(path))
			}
			if err != nil {
				var of *os.PathError
				if errors.As(err, &of) {
					err = of.Err
				}
				return nil, &PathError{Grant: granted.grant, Path: path, Err: err}
			}
		}
	}
	var list []place
	for _, at := range byPath {
		list = append(list, *at)
	}
	slices.SortFunc(list, func(a, b place) int { return strings.Compare(a.path, b.path) })
	return list, nil
}

// deviceAccess returns devices for paths below /dev: an owner who grants such a path means the device.
func deviceAccess(path string) access {
	if below(path, "/dev") {
		return devices
	}
	return 0
}

// ownedLink refuses a granted path that leads through a link in a directory that the role can write. The role could make the link itself, and so
// choose what it sees after a restart.
func ownedLink(path string, p Policy) error {
	var writable []string
	for _, name := range slices.Concat(p.Private, p.Remit.Write) {
		real, err := filepath.EvalSymlinks(name)
		if err != nil {
			return err
		}
		writable = append(writable, real)
	}
	// at has no links, so it shows which directory a link is in.
	at, rest := "/", strings.Split(path, "/")
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		if name == "" || name == "." {
			continue
		}
		next := filepath.Join(at, name)
		if name == ".." {
			at = next
			continue
		}
		info, err := os.Lstat(next)
		if err != nil {
			return err
		}
		if info.Mode().Type() != os.ModeSymlink {
			at = next
			continue
		}
		if slices.ContainsFunc(writable, func(directory string) bool { return below(at, directory) }) {
			return fmt.Errorf("it is reached through a link that the role can change (in %s): %w", at, syscall.ELOOP)
		}
		target, err := os.Readlink(next)
		if links++; err != nil || links > maxLinks {
			return errors.Join(err, syscall.ELOOP)
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return nil
}

// maxLinks is how many links the kernel follows in one path.
const maxLinks = 40

// below reports whether path is directory or below it.
func below(path, directory string) bool {
	return path == directory || directory == "/" || strings.HasPrefix(path, directory+"/")
}

// inherited returns the access that a place has because it is below others in the list.
func inherited(list []place, path string) (access, bool) {
	var sum access
	var found bool
	for _, at := range list {
		if at.path != path && below(path, at.path) {
			sum |= at.access
			found = true
		}
	}
	return sum, found
}
