package plugin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

const (
	// firstUID begins the user IDs that are handed out: systemd's table of user IDs leaves them unused, above what it gives to containers.
	firstUID = 1879048192
	// rangeSize is how many IDs a node has: one for Describe, and one for every role that it has ever run.
	rangeSize = 1024
	// rangeCount keeps the last ID below 2^31, above which some file systems and tools are lost.
	rangeCount = (1<<31 - firstUID) / rangeSize
)

// rangesFile is shared by all nodes of a host.
type rangesFile struct {
	versioned
	Ranges []uidRange `json:"ranges"`
}

type uidRange struct {
	Start uint32 `json:"start"`
	// Owner is the data directory of the node that has the range.
	Owner string `json:"owner"`
}

func (r uidRange) holds(uid uint32) bool { return uid >= r.Start && uid-r.Start < rangeSize }

// reserveRange returns the range of an owner, and reserves one if it has none. The file is locked meanwhile, by a file beside it since it
// is replaced as a whole.
func reserveRange(path, owner string) (uidRange, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o711); err != nil {
		return uidRange{}, err
	}
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return uidRange{}, err
	}
	defer func() { _ = lock.Close() }() // which unlocks it
	if err := flock(lock); err != nil {
		return uidRange{}, fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	removeInterrupted(path)
	file := rangesFile{versioned: versioned{formatVersion}}
	if _, err := readJSON(path, &file); err != nil {
		return uidRange{}, fmt.Errorf("%w; it says which user IDs belong to which node: repair it, or remove it while no node runs", err)
	}
	for _, r := range file.Ranges {
		if r.Owner == owner {
			return r, nil
		}
	}
	reserved, err := freeRange(file.Ranges, owner)
	if err != nil {
		return uidRange{}, err
	}
	file.Ranges = slices.DeleteFunc(file.Ranges, func(r uidRange) bool { return r.Start == reserved.Start })
	file.Ranges = append(file.Ranges, reserved)
	if err := writeJSON(path, file, 0o600); err != nil {
		return uidRange{}, err
	}
	return reserved, nil
}

func flock(file *os.File) error {
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// freeRange is the lowest range that nobody has, or whose owner is gone together with every process of the range.
func freeRange(taken []uidRange, owner string) (uidRange, error) {
	owners := make(map[uint32]string, len(taken))
	for _, r := range taken {
		owners[r.Start] = r.Owner
	}
	for n := range uint32(rangeCount) {
		candidate := uidRange{Start: firstUID + n*rangeSize, Owner: owner}
		other, reserved := owners[candidate.Start]
		if reserved {
			if _, err := os.Lstat(other); !errors.Is(err, fs.ErrNotExist) {
				continue
			}
		}
		used, err := anyProcess(func(pid int) bool { return hasUID(pid, candidate.holds) })
		if err != nil {
			return uidRange{}, err
		}
		if !used {
			return candidate, nil
		}
	}
	return uidRange{}, fmt.Errorf("%w: all %d ranges are reserved", ErrRangesFull, rangeCount)
}
