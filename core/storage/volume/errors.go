package volume

import (
	"errors"
	"fmt"
	"strings"
)

// The errors that the node decides by.
var (
	ErrWrongKey = errors.New("volume: the key is not that of this volume")
	ErrFixedKey = errors.New("volume: the data key of this kind of volume cannot be changed without rewriting the data: rotate NUK and CUK, which protect it")
)

// NotEmptyError says that a location was not formatted because it is not empty.
type NotEmptyError struct {
	// Location was not formatted. Found names something in it.
	Location, Found string
}

func (e *NotEmptyError) Error() string {
	return "volume: " + e.Location + " is not formatted because it is not empty: there is " + e.Found + ": give the node another place, or empty this one by hand if nothing on it is needed"
}

// NeedsRootError says that only root can use this kind of volume.
type NeedsRootError struct {
	// Kind is the kind of volume, Doing the step that needs root.
	Kind, Doing string
}

func (e *NeedsRootError) Error() string {
	return fmt.Sprintf("volume: to %s, a volume of kind %s needs root with CAP_SYS_ADMIN, which this process does not have: run reeved as root, or use the kind plain, which is not encrypted", e.Doing, e.Kind)
}

// DamagedError says that what is at a location is not the node's volume. It is neither opened nor formatted.
type DamagedError struct {
	// Location is the place, Problem says what is wrong and what to do.
	Location, Problem string
}

func (e *DamagedError) Error() string {
	return "volume: " + e.Location + " is not opened and not changed: " + e.Problem
}

// MissingProgramError says that a program is not installed.
type MissingProgramError struct {
	// Program is its name, Package the Debian package that contains it.
	Program, Package string
}

func (e *MissingProgramError) Error() string {
	return fmt.Sprintf("volume: the program %s is not installed, or not executable: `apt-get install %s`", e.Program, e.Package)
}

// BusyError says that a volume cannot be closed because processes have its files open.
type BusyError struct {
	Location string
	// Users are the processes that were found.
	Users []User
}

// User is a process that uses something on a volume.
type User struct {
	PID int
	// Command is the process's name, Path the file that it uses.
	Command, Path string
	// Use is how: "open", "mapped", "working directory", "root directory", "executable", "socket" or "mount".
	Use string
}

func (u User) String() string {
	return fmt.Sprintf("process %d (%s): %s %s", u.PID, u.Command, u.Use, u.Path)
}

// named is the number of users that an error lists.
const named = 8

func (e *BusyError) Error() string {
	if len(e.Users) == 0 {
		return "volume: " + e.Location + " is busy and stays open, and no process was found that uses it: look for a swap file, a loop device, an NFS export or a mount namespace bound to a file (`findmnt -t nsfs`), end that use, and try again"
	}
	var users []string
	for _, user := range e.Users[:min(len(e.Users), named)] {
		users = append(users, user.String())
	}
	if more := len(e.Users) - named; more > 0 {
		users = append(users, fmt.Sprintf("and %d more", more))
	}
	return "volume: " + e.Location + " is busy and stays open: end these uses and try again: " + strings.Join(users, "; ")
}
