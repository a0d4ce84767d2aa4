package users

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/reeveproject/reeve/core/storage"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// ErrRangesFull says that no user IDs are left to reserve.
var ErrRangesFull = errors.New("no user IDs are left")

// Users says under which user ID each role runs. Where the core is root every role has an ID of its own, which no other role, node or
// account of the host has; otherwise all share the core's. The zero value says the latter.
type Users struct {
	// own says that each role has an ID of its own, of ids.
	own bool
	ids uidRange
	// former are the ranges that the node had before: an earlier core may have left processes there.
	former []uidRange
	// lock holds ids for this core; nil if they are shared.
	lock *os.File
	path string

	mu       sync.Mutex
	assigned assignmentsFile
}

// formatVersion is the version of every file of this package. A file of another version is refused, not guessed at.
const formatVersion = 1

// assignmentsFile keeps offsets into the range and not IDs, so that a volume may move to a host where the node has another range.
type assignmentsFile struct {
	Version int `json:"version"`
	// Roles maps a role to its offset. Offset 0 is for Describe.
	Roles map[string]uint32 `json:"roles"`
}

// Reserve returns the user IDs for the roles of the node whose data directory is owner, which must exist. As root it reserves a
// range of 1024 IDs in rangesFile, which all nodes of the host share (by convention /var/lib/reeve/uid-ranges); the same owner always
// gets the same range. A core holds its range by a lock until Close: while it does, the range is nobody else's, also if the owner's directory cannot be seen from another mount
// namespace. The range of an owner whose directory is gone is given to another only once no core holds it and no process uses it. Which role has which
// ID is kept in assignmentsFile, on the volume. As an ordinary user it touches no file.
//
// wanted is the range that the node is to have; nil: 1024 that nobody has. A *RangeError says that another node, or an account of the host, has an
// ID of it: it is asked every time, since accounts come.
func Reserve(rangesFile, assignmentsFile, owner string, wanted *nodev1.UserRange) (*Users, error) {
	if os.Geteuid() != 0 {
		return &Users{}, nil
	}
	real, err := filepath.EvalSymlinks(owner)
	if err == nil {
		real, err = filepath.Abs(real)
	}
	if err != nil {
		return nil, fmt.Errorf("plugin: user IDs of %s: %w", owner, err)
	}
	if err := Check(wanted); err != nil {
		return nil, fmt.Errorf("plugin: user IDs of %s: %w", owner, err)
	}
	ids, lock, former, err := reserveRange(rangesFile, real, wanted)
	if err != nil {
		return nil, fmt.Errorf("plugin: user IDs of %s: %w", owner, err)
	}
	_ = storage.RemoveDrafts(assignmentsFile) // a draft that stays only takes room
	users := &Users{own: true, ids: ids, former: former, lock: lock, path: assignmentsFile}
	users.assigned.Version = formatVersion
	if err := storage.ReadJSON(assignmentsFile, formatVersion, &users.assigned); err != nil {
		return nil, errors.Join(fmt.Errorf("plugin: user IDs of roles: %w", err), users.Close())
	}
	if users.assigned.Roles == nil {
		users.assigned.Roles = make(map[string]uint32)
	}
	return users, nil
}

// Check returns a *RangeError if an account of the host has an ID of the range that a node is to have; nil: it may have any. It touches nothing.
func Check(wanted *nodev1.UserRange) error {
	if wanted == nil || os.Geteuid() != 0 {
		return nil
	}
	return freeOfAccounts(uidRange{Start: wanted.GetFirst(), Count: wanted.GetCount()})
}

// Close lets go of the range. It stays the owner's, and is nobody else's while a process uses it.
func (u *Users) Close() error {
	if u == nil || u.lock == nil {
		return nil
	}
	lock := u.lock
	u.lock = nil
	return lock.Close()
}

// Shared reports whether all roles run under the core's user ID and so are not protected from each other.
func (u *Users) Shared() bool { return !u.own }

// Of returns the user and group ID of a role. The first time it is asked for a role it assigns them, and returns when the assignment is on
// disk. An ID that a role once had is never given to another role of the node.
func (u *Users) Of(role string) (uid, gid uint32, err error) {
	if !u.own {
		return uint32(os.Geteuid()), uint32(os.Getegid()), nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	offset, ok := u.assigned.Roles[role]
	if !ok {
		for _, used := range u.assigned.Roles {
			offset = max(offset, used)
		}
		offset++
	}
	if offset >= u.ids.count() {
		return 0, 0, fmt.Errorf("plugin: user ID of role %s: %w: this node has %d and needs one for each role that it has ever run, and one more; "+
			"give it more (sandbox.users in its parameters)", role, ErrRangesFull, u.ids.count())
	}
	if !ok {
		u.assigned.Roles[role] = offset
		if err := storage.WriteJSON(u.path, u.assigned, 0o600); err != nil {
			delete(u.assigned.Roles, role)
			return 0, 0, fmt.Errorf("plugin: user ID of role %s: %w", role, err)
		}
	}
	return u.ids.Start + offset, u.ids.Start + offset, nil
}

// OfDescribe is the ID under which plugins are asked for their manifests: they are nobody's role yet.
func (u *Users) OfDescribe() (uid, gid uint32) {
	if !u.own {
		return uint32(os.Geteuid()), uint32(os.Getegid())
	}
	return u.ids.Start, u.ids.Start
}

// Held reports whether a user ID belongs to the node, or did before it was given others.
func (u *Users) Held(uid uint32) bool {
	return u.ids.holds(uid) || slices.ContainsFunc(u.former, func(r uidRange) bool { return r.holds(uid) })
}
