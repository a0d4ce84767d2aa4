package dev

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/setup"
	"github.com/reeveproject/reeve/cli/target"
)

// Places are the directories of the host in which parts of dev directories are kept.
type Places struct {
	// State holds dev directories of root that cannot lie where they were asked for.
	State string
	// Run holds the run directories. Paths of sockets end at 107 bytes and a node may use 59 of them, so that it has to be short.
	Run string
	// Disks holds what is remembered of the disks of dev directories; empty: nothing is.
	Disks string
}

// maxRun is the longest path of a run directory that reeved accepts.
const maxRun = 48

// HostPlaces returns the places that fit the host and the user.
func HostPlaces() Places {
	places := Places{State: "/var/lib/reeve/dev", Run: "/run/reeve", Disks: "/var/lib/reeve/dev-disks"}
	if os.Geteuid() == 0 {
		return places
	}
	places.Disks = ""
	if kept := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(kept) {
		places.Disks = filepath.Join(kept, "reeve", "dev-disks")
	} else if home, err := os.UserHomeDir(); err == nil {
		places.Disks = filepath.Join(home, ".local", "state", "reeve", "dev-disks")
	}
	places.Run = filepath.Join(os.TempDir(), "reeve-"+strconv.Itoa(os.Geteuid()))
	if runtime := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(runtime) {
		run := filepath.Join(runtime, "reeve")
		if info, err := os.Stat(runtime); err == nil && info.IsDir() && len(run)+1+hashLength <= maxRun {
			places.Run = run
		}
	}
	return places
}

// Expected returns the data and the run directory that a new dev directory at a path would have. It makes nothing.
func (p Places) Expected(path string) (data, run string, err error) {
	state, err := filepath.Abs(path)
	if err != nil {
		return "", "", err
	}
	if os.Geteuid() == 0 {
		above := filepath.Dir(state)
		for {
			if _, err := os.Stat(above); err == nil || above == "/" {
				break
			}
			above = filepath.Dir(above)
		}
		reachable, err := searchable(above)
		if err != nil {
			return "", "", err
		}
		if !reachable {
			state = filepath.Join(p.State, short(state))
		}
	}
	return filepath.Join(state, "data"), filepath.Join(p.Run, short(state)), nil
}

// hashLength is how many characters tell one dev directory of a host from another.
const hashLength = 12

// short is a short name for a path.
func short(path string) string {
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:])[:hashLength]
}

// privateMode is that of directories in which only the node's roles find their way: as root they have user IDs of their own, and search what
// they cannot list.
func privateMode() fs.FileMode {
	if os.Geteuid() == 0 {
		return 0o711
	}
	return 0o700
}

// makeOwn makes a directory, and those above it, and checks that it is the caller's: in /tmp it could be another one's trap.
func makeOwn(path string) error {
	if err := setup.MakeParents(path); err != nil {
		return err
	}
	if err := os.Mkdir(path, privateMode()); err == nil {
		// The mode of Mkdir is subject to the umask.
		return os.Chmod(path, privateMode())
	} else if !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || int(stat.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
		return fault.New(fault.Refused, path+" is not a directory that only the caller can write", "Remove it, or see who made it.")
	}
	return nil
}

// searchable says whether every user can search a directory and all that are above it.
func searchable(path string) (bool, error) {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return false, err
	}
	for {
		info, err := os.Stat(path)
		if err != nil {
			return false, err
		}
		if info.Mode().Perm()&0o001 == 0 {
			return false, nil
		}
		if path == "/" {
			return true, nil
		}
		path = filepath.Dir(path)
	}
}

// chooseState makes the directory for path if there is none, and returns where it really is.
func chooseState(path string, places Places) (string, error) {
	if err := setup.MakeParents(path); err != nil {
		return "", err
	}
	if link, err := os.Readlink(path); err == nil {
		// The directory itself may be gone while the link is still there.
		if !filepath.IsAbs(link) {
			link = filepath.Join(filepath.Dir(path), link)
		}
		if filepath.Dir(link) == places.State {
			if err := makeOwn(places.State); err != nil {
				return "", err
			}
			if err := makeOwn(link); err != nil {
				return "", err
			}
		}
		return filepath.EvalSymlinks(path)
	}
	info, err := os.Stat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	exists := err == nil
	if exists && !info.IsDir() {
		return "", fault.New(fault.Usage, path+" is not a directory", "Give another one with --dir.")
	}
	if exists {
		if err := checkContent(path); err != nil {
			return "", err
		}
	}
	reachable := os.Geteuid() != 0
	if !reachable {
		if reachable, err = searchable(filepath.Dir(path)); err != nil {
			return "", err
		}
	}
	if reachable {
		if err := os.Mkdir(path, privateMode()); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
		// One that was there may have been made with another mode; only its owner can set it.
		if err := os.Chmod(path, privateMode()); err != nil {
			return "", err
		}
		return filepath.EvalSymlinks(path)
	}
	if exists {
		if err := os.Remove(path); err != nil {
			return "", fault.Wrap(fault.Refused, err,
				fmt.Sprintf("the roles' users cannot reach %s, and it is in the way of a link to where they can", path),
				"Move it away, or give another directory with --dir.")
		}
	}
	state := filepath.Join(places.State, short(path))
	if err := errors.Join(makeOwn(places.State), makeOwn(state)); err != nil {
		return "", err
	}
	return state, os.Symlink(state, path)
}

// checkContent refuses a directory that holds something else: a mistyped --dir must not scatter a node's files over it.
func checkContent(path string) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		switch entry.Name() {
		case "owner.key", RecoveryKey, parametersName, parametersName + setup.MarkSuffix, "lost+found", target.PlaceName, movedName, logName, hostsName, networkName, "system", "data", "run", nodesName:
		default:
			if strings.HasPrefix(entry.Name(), ".") {
				continue // A draft of one of them.
			}
			return fault.New(fault.Refused, fmt.Sprintf("%s is not a dev directory: it holds %s", path, entry.Name()),
				"Give a new or an empty directory with --dir.")
		}
	}
	return nil
}
