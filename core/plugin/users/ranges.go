package users

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/eintr"
	"github.com/reeveproject/reeve/core/proc"
	"github.com/reeveproject/reeve/core/storage"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

const (
	// firstUID begins the user IDs that are handed out: systemd's table of user IDs leaves them unused, above what it gives to containers.
	firstUID = 1879048192
	// rangeSize is how many IDs a node has that says nothing of it: one for Describe, and one for every role that it has ever run.
	rangeSize = 1024
	// rangeCount keeps the last ID below 2^31, above which some file systems and tools are lost.
	rangeCount = (1<<31 - firstUID) / rangeSize
)

// rangesFile is shared by all nodes of a host.
type rangesFile struct {
	Version int        `json:"version"`
	Ranges  []uidRange `json:"ranges"`
}

type uidRange struct {
	Start uint32 `json:"start"`
	// Count is how many IDs it has; 0: rangeSize.
	Count uint32 `json:"count,omitempty"`
	// Owner is the data directory of the node that has the range.
	Owner string `json:"owner"`
}

func (r uidRange) count() uint32 {
	if r.Count == 0 {
		return rangeSize
	}
	return r.Count
}

func (r uidRange) holds(uid uint32) bool { return uid >= r.Start && uid-r.Start < r.count() }

func (r uidRange) overlaps(other uidRange) bool { return r.holds(other.Start) || other.holds(r.Start) }

func (r uidRange) String() string {
	return fmt.Sprintf("%d to %d", r.Start, uint64(r.Start)+uint64(r.count())-1)
}

// gone reports whether the node that has the range is no more.
func (r uidRange) gone() bool {
	_, err := os.Lstat(r.Owner)
	return errors.Is(err, fs.ErrNotExist)
}

// inUse reports whether a process has an ID of the range.
func (r uidRange) inUse() (bool, error) {
	found, err := proc.Find(func(pid int) bool { return proc.HasUID(pid, r.holds) })
	proc.CloseAll(found)
	return len(found) > 0, err
}

// reserveRange returns the range of an owner, and reserves one if it has none, or another than the one that is wanted: former is then what it had before.
// The file is locked meanwhile, by a file beside it since it is replaced as a whole.
func reserveRange(path, owner string, wanted *nodev1.UserRange) (reserved uidRange, former []uidRange, err error) {
	if err := storage.MakeDirectories(filepath.Dir(path), 0o711); err != nil {
		return uidRange{}, nil, err
	}
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return uidRange{}, nil, err
	}
	defer func() { _ = lock.Close() }() // which unlocks it
	if _, err := eintr.Retry(func() (struct{}, error) { return struct{}{}, unix.Flock(int(lock.Fd()), unix.LOCK_EX) }); err != nil {
		return uidRange{}, nil, fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	_ = storage.RemoveDrafts(path)
	file := rangesFile{Version: formatVersion}
	if err := storage.ReadJSON(path, formatVersion, &file); err != nil {
		return uidRange{}, nil, fmt.Errorf("%w; it says which user IDs belong to which node: repair it, or remove it while no node runs", err)
	}
	for _, r := range file.Ranges {
		if r.Owner != owner {
			continue
		}
		if wanted == nil && r.Count == 0 || wanted != nil && r.Start == wanted.GetFirst() && r.count() == wanted.GetCount() {
			return r, nil, nil
		}
		former = append(former, r)
	}
	if wanted == nil {
		reserved, err = freeRange(file.Ranges, owner)
	} else {
		reserved = uidRange{Start: wanted.GetFirst(), Count: wanted.GetCount(), Owner: owner}
		err = reserved.free(file.Ranges)
	}
	if err != nil {
		return uidRange{}, nil, err
	}
	// What overlaps is of nodes that are gone, or was this one's.
	file.Ranges = slices.DeleteFunc(file.Ranges, func(r uidRange) bool { return r.Owner == owner || r.overlaps(reserved) })
	file.Ranges = append(file.Ranges, reserved)
	if err := storage.WriteJSON(path, file, 0o600); err != nil {
		return uidRange{}, nil, err
	}
	return reserved, former, nil
}

// freeRange is the lowest range that nobody has, or whose owner is gone together with every process of the range.
func freeRange(taken []uidRange, owner string) (uidRange, error) {
	for n := range uint32(rangeCount) {
		candidate := uidRange{Start: firstUID + n*rangeSize, Owner: owner}
		if slices.ContainsFunc(taken, func(r uidRange) bool { return r.overlaps(candidate) && !r.gone() }) {
			continue
		}
		used, err := candidate.inUse()
		if err != nil {
			return uidRange{}, err
		}
		if !used {
			return candidate, nil
		}
	}
	return uidRange{}, fmt.Errorf("%w: all %d ranges are reserved", ErrRangesFull, rangeCount)
}

// free returns nil if a range that somebody chose is nobody else's: neither another node's nor that of an account of the host.
func (r uidRange) free(taken []uidRange) error {
	if uint64(r.Start)+uint64(r.count()) > 1<<31 {
		return fmt.Errorf("the user IDs %s reach beyond %d, where some file systems and tools are lost: choose lower ones (sandbox.users)", r, uint32(1<<31-1))
	}
	for _, other := range taken {
		if other.Owner == r.Owner || !other.overlaps(r) {
			continue
		}
		if !other.gone() {
			return &RangeError{Range: r.String(), Of: "the node in " + other.Owner, Theirs: other.String()}
		}
		used, err := other.inUse()
		if err != nil {
			return err
		}
		if used {
			return &RangeError{Range: r.String(), Of: "processes that the node left that was in " + other.Owner, Theirs: other.String()}
		}
	}
	return nil
}
