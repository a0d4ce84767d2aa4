package volume

import (
	"errors"
	"fmt"
	"strings"
)

// The errors by which the node decides.
var (
	ErrWrongKey = errors.New("volume: the key is not that of this volume")
	ErrFixedKey = errors.New("volume: the data key of this kind of volume cannot be changed without rewriting the data: rotate NUK and CUK, which protect it")
)

// NotEmptyError says that a volume is not formatted since something is there.
type NotEmptyError struct {
	// Location is where, Found what.
	Location, Found string
}

func (e *NotEmptyError) Error() string {
	return "volume: " + e.Location + " is not formatted, since it is not empty: there is " + e.Found + ": give the node another place, or empty this one by hand if nothing on it is needed"
}

// NeedsRootError says that a kind of volume cannot be used by an ordinary user.
type NeedsRootError struct {
	// Kind of the volume, and Doing what the system refused.
	Kind, Doing string
}

func (e *NeedsRootError) Error() string {
	return fmt.Sprintf("volume: to %s, a volume of kind %s needs root with CAP_SYS_ADMIN, which this process does not have: run reeved as root, or use the kind plain, which is not encrypted", e.Doing, e.Kind)
}

// DamagedError says that a volume is there, and is not what it must be: it is neither opened nor formatted.
type DamagedError struct {
	// Location is where the volume is, Problem says what is wrong and what to do.
	Location, Problem string
}

func (e *DamagedError) Error() string {
	return "volume: " + e.Location + " is not opened, and nothing of it is changed: " + e.Problem
}

// MissingProgramError says that a program is not installed.
type MissingProgramError struct {
	// Program is its name, Package the Debian package that has it.
	Program, Package string
}

func (e *MissingProgramError) Error() string {
	return fmt.Sprintf("volume: the program %s is not installed, or not executable: `apt-get install %s`", e.Program, e.Package)
}

// BusyError says that a volume cannot be closed since processes have files of it open.
type BusyError struct {
	Location string
	// Users are the processes, as far as they could be found.
	Users []User
}

// User is a process that has something of a volume open.
type User struct {
	PID int
	// Command is its name, Path what it has open.
	Command, Path string
	// Use is how: "open", "mapped", "working directory", "root directory", "executable", "socket", "mount".
	Use string
}

func (u User) String() string {
	return fmt.Sprintf("process %d (%s): %s %s", u.PID, u.Command, u.Use, u.Path)
}

// named is how many users the text of an error has.
const named = 8

func (e *BusyError) Error() string {
	if len(e.Users) == 0 {
		return "volume: " + e.Location + " is busy and stays usable, though no process could be found that has something of it open: look for a swap file, a loop device, an NFS export or a mount namespace kept by a file (`findmnt -t nsfs`) that has it, end that use, and try again"
	}
	var users []string
	for _, user := range e.Users[:min(len(e.Users), named)] {
		users = append(users, user.String())
	}
	if more := len(e.Users) - named; more > 0 {
		users = append(users, fmt.Sprintf("and %d more", more))
	}
	return "volume: " + e.Location + " is busy and stays usable: end what uses it, and try again: " + strings.Join(users, "; ")
}
