package users

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/proc"
	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/proto/eintr"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

const (
	// firstUID begins the user IDs that are handed out: systemd's table of user IDs leaves them unused, above what it gives to containers.
	firstUID = 1879048192
	// rangeSize is how many IDs a node has that says nothing of it: one for Describe, and one for every role that it has ever run.
	rangeSize = 1024
	// rangeCount keeps the last ID below 2^31, above which some file systems and tools are lost.
	rangeCount = (1<<31 - firstUID) / rangeSize
	// ownPatience is how long the range of the owner itself may be held by what is left of its former core, and ownAgain the time between two looks.
	ownPatience = 5 * time.Second
	ownAgain    = 10 * time.Millisecond
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

// gone reports whether the owner's directory is not to be seen: the node may be no more, or its directory in another mount namespace.
func (r uidRange) gone() bool {
	_, err := os.Lstat(r.Owner)
	return errors.Is(err, fs.ErrNotExist)
}

// lockPath returns the file whose lock says that a core holds the range. It is beside the ranges file, which all nodes of the host share.
func (r uidRange) lockPath(ranges string) string {
	return filepath.Join(ranges+".locks", strconv.FormatUint(uint64(r.Start), 10))
}

// hold locks the range; nil if another core holds it. The kernel releases the lock when the core ends.
func (r uidRange) hold(ranges string) (*os.File, error) {
	if err := storage.MakeDirectories(filepath.Dir(r.lockPath(ranges)), 0o700); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(r.lockPath(ranges), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return file, nil
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = nil
	} else {
		err = fmt.Errorf("lock %s: %w", file.Name(), err)
	}
	return nil, errors.Join(err, file.Close())
}

// held reports whether another core holds the range.
func (r uidRange) held(ranges string) (bool, error) {
	if _, err := os.Lstat(r.lockPath(ranges)); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	lock, err := r.hold(ranges)
	if err != nil || lock == nil {
		return err == nil, err
	}
	return false, lock.Close()
}

// inUse reports whether a process has an ID of the range.
func (r uidRange) inUse() (bool, error) {
	found, err := proc.Find(func(pid int) bool { return proc.HasUID(pid, r.holds) })
	proc.CloseAll(found)
	return len(found) > 0, err
}

// reserveRange returns the range of an owner with its lock, and reserves one if it has none, or another than the one that is wanted: former is then what it had
// before. The file is locked meanwhile, by a file beside it since it is replaced as a whole.
//
// A range that a core holds is its own, whatever its owner's path is here: paths are those of a mount namespace, and two nodes may have the same one.
func reserveRange(path, owner string, wanted *nodev1.UserRange) (reserved uidRange, lock *os.File, former []uidRange, err error) {
	fail := func(err error) (uidRange, *os.File, []uidRange, error) { return uidRange{}, nil, nil, err }
	if err := storage.MakeDirectories(filepath.Dir(path), 0o711); err != nil {
		return fail(err)
	}
	whole, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = whole.Close() }() // which unlocks it
	if _, err := eintr.Retry(func() (struct{}, error) { return struct{}{}, unix.Flock(int(whole.Fd()), unix.LOCK_EX) }); err != nil {
		return fail(fmt.Errorf("lock %s: %w", whole.Name(), err))
	}
	_ = storage.RemoveDrafts(path)
	file := rangesFile{Version: formatVersion}
	if err := storage.ReadJSON(path, formatVersion, &file); err != nil {
		return fail(fmt.Errorf("%w; it says which user IDs belong to which node: repair it, or remove it while no node runs", err))
	}
	taken := make([]bool, len(file.Ranges)) // by cores that run
	// Every other core of the machine waits for the file meanwhile.
	until := time.Now().Add(ownPatience)
	for i, r := range file.Ranges {
		if taken[i], err = r.held(path); err != nil {
			return fail(err)
		}
		// Of one owner only one core runs. The one before may have just ended, and a process that it was about to launch still have its files open.
		for taken[i] && r.Owner == owner && time.Now().Before(until) {
			time.Sleep(ownAgain)
			if taken[i], err = r.held(path); err != nil {
				return fail(err)
			}
		}
		if r.Owner != owner || taken[i] {
			continue
		}
		if wanted == nil && r.Count == 0 || wanted != nil && r.Start == wanted.GetFirst() && r.count() == wanted.GetCount() {
			lock, err := r.hold(path)
			return r, lock, nil, err
		}
		former = append(former, r)
	}
	all := reservations{path: path, list: file.Ranges, held: taken}
	if wanted == nil {
		reserved, lock, err = all.free(owner)
	} else {
		reserved = uidRange{Start: wanted.GetFirst(), Count: wanted.GetCount(), Owner: owner}
		lock, err = all.take(reserved)
	}
	if err != nil {
		return fail(err)
	}
	file.Ranges = append(all.others(reserved), reserved)
	if err := storage.WriteJSON(path, file, 0o600); err != nil {
		return fail(errors.Join(err, lock.Close()))
	}
	return reserved, lock, former, nil
}

// reservations are the ranges of the file.
type reservations struct {
	path string
	list []uidRange
	// held says of each range whether another core holds it.
	held []bool
}

// others returns the ranges that stay when one is reserved. Those of nodes that are gone do not, unless a process still uses them.
func (all reservations) others(reserved uidRange) (stay []uidRange) {
	used := make([]bool, len(all.list))
	found, err := proc.Find(func(pid int) bool {
		return proc.HasUID(pid, func(uid uint32) bool {
			for i, r := range all.list {
				used[i] = used[i] || r.holds(uid)
			}
			return false
		})
	})
	proc.CloseAll(found)
	for i, r := range all.list {
		switch {
		case all.held[i]:
		case r.Owner == reserved.Owner, r.overlaps(reserved):
			continue
		case err == nil && !used[i] && r.gone():
			// Only who has the lock of the whole file takes one of a range.
			_ = os.Remove(r.lockPath(all.path))
			continue
		}
		stay = append(stay, r)
	}
	return stay
}

// free locks and returns the lowest range that nobody has, or whose owner is gone together with its core and every process of the range.
func (all reservations) free(owner string) (uidRange, *os.File, error) {
	for n := range uint32(rangeCount) {
		candidate := uidRange{Start: firstUID + n*rangeSize, Owner: owner}
		if slices.ContainsFunc(all.list, func(r uidRange) bool { return r.overlaps(candidate) && !r.gone() }) {
			continue
		}
		lock, err := all.takeFree(candidate)
		if err != nil || lock != nil {
			return candidate, lock, err
		}
	}
	return uidRange{}, nil, fmt.Errorf("%w: all %d ranges are reserved", ErrRangesFull, rangeCount)
}

// takeFree locks a range; nil if a core holds one that overlaps it, or a process has an ID of it.
func (all reservations) takeFree(candidate uidRange) (*os.File, error) {
	for i, r := range all.list {
		if all.held[i] && r.overlaps(candidate) {
			return nil, nil
		}
	}
	lock, err := candidate.hold(all.path)
	if err != nil || lock == nil {
		return nil, err
	}
	used, err := candidate.inUse()
	if err == nil && !used {
		return lock, nil
	}
	return nil, errors.Join(err, lock.Close())
}

// take locks a range that somebody chose, unless it is another node's.
func (all reservations) take(r uidRange) (*os.File, error) {
	if uint64(r.Start)+uint64(r.count()) > 1<<31 {
		return nil, fmt.Errorf("the user IDs %s reach beyond %d, where some file systems and tools are lost: choose lower ones (sandbox.users)", r, uint32(1<<31-1))
	}
	for i, other := range all.list {
		if !other.overlaps(r) || other.Owner == r.Owner && !all.held[i] {
			continue
		}
		if all.held[i] || !other.gone() {
			return nil, &RangeError{Range: r.String(), Of: "the node in " + other.Owner, Theirs: other.String()}
		}
		used, err := other.inUse()
		if err != nil {
			return nil, err
		}
		if used {
			return nil, &RangeError{Range: r.String(), Of: "processes that the node left that was in " + other.Owner, Theirs: other.String()}
		}
	}
	lock, err := r.hold(all.path)
	if err == nil && lock == nil {
		err = &RangeError{Range: r.String(), Of: "a node that runs", Theirs: r.String()}
	}
	return lock, err
}
