package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/proto/mountinfo"
)

// hierarchy is one tree of groups, as the core sees it.
type hierarchy struct {
	// directory is the core's own group.
	directory string
	// controllers are the available ones that are used here, sorted.
	controllers []string
	// unified says that it is cgroup v2.
	unified bool
}

// hierarchies finds the hierarchies in /proc/self/cgroup and among the mounts.
func hierarchies(groups string, mounts []mountinfo.Mount) []hierarchy {
	own := make(map[string]string) // path by controllers, as the kernel lists them; "" is v2
	for _, line := range strings.Split(groups, "\n") {
		_, rest, ok := strings.Cut(line, ":")
		if names, path, found := strings.Cut(rest, ":"); ok && found {
			own[names] = path
		}
	}
	var found []hierarchy
	seen := make(map[string]bool)
	for _, mount := range mounts {
		var names string
		unified := mount.Type == "cgroup2"
		switch {
		case unified:
		case mount.Type == "cgroup":
			names = v1Names(own, mount.Super)
			if names == "" {
				continue // a hierarchy without controllers, such as systemd's
			}
		default:
			continue
		}
		path, member := own[names]
		below, inside := cutPrefix(path, mount.Root)
		if !member || !inside || seen[names] {
			continue // a mount of another part of the tree, or another mount of it
		}
		seen[names] = true
		h := hierarchy{directory: filepath.Join(mount.Target, below), unified: unified}
		available := strings.Split(names, ",")
		if unified {
			available = unifiedControllers(h.directory)
		}
		for _, controller := range controllers {
			if slices.Contains(available, controller) {
				h.controllers = append(h.controllers, controller)
			}
		}
		found = append(found, h)
	}
	// A v2 tree beside v1 hierarchies has no controllers, and moving a process into it blocks all forks of the machine. It is useful only if there is
	// no other way to find a role's processes.
	if slices.ContainsFunc(found, func(h hierarchy) bool { return len(h.controllers) > 0 }) {
		found = slices.DeleteFunc(found, func(h hierarchy) bool { return len(h.controllers) == 0 })
	}
	return found
}

// v1Names returns the hierarchy of /proc/self/cgroup that a mount with these options is; "" if none.
func v1Names(own map[string]string, options []string) string {
	for names := range own {
		if names == "" || strings.HasPrefix(names, "name=") {
			continue
		}
		every := true
		for _, name := range strings.Split(names, ",") {
			every = every && slices.Contains(options, name)
		}
		if every {
			return names
		}
	}
	return ""
}

// unifiedControllers returns the controllers that a v2 group could pass on: none if v1 has them all.
func unifiedControllers(directory string) []string {
	text, err := os.ReadFile(filepath.Join(directory, "cgroup.controllers"))
	if err != nil {
		return nil
	}
	return strings.Fields(string(text))
}

// cutPrefix cuts a leading directory off a path.
func cutPrefix(path, directory string) (string, bool) {
	if directory == "/" {
		return path, true
	}
	rest, ok := strings.CutPrefix(path, directory)
	return rest, ok && (rest == "" || rest[0] == '/')
}

// isRoot reports whether a v2 group is the root group, the only one that may hold processes and pass on controllers.
func isRoot(directory string) bool {
	_, err := os.Lstat(filepath.Join(directory, "cgroup.type"))
	return os.IsNotExist(err)
}

// delegated reports whether the manager of the groups has delegated a group.
func delegated(directory string) bool {
	for _, name := range []string{"trusted.delegate", "user.delegate"} {
		var value [2]byte
		if n, err := unix.Getxattr(directory, name, value[:]); err == nil && n == 1 && value[0] == '1' {
			return true
		}
	}
	return false
}
