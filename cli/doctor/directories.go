package doctor

import (
	"fmt"
	"strings"

	"github.com/reeveproject/reeve/cli/output"
)

// found is where a directory is, for people.
func (d Directory) found() string {
	if d.At == d.Path {
		return d.Path
	}
	return d.Path + " (at " + d.At + ")"
}

// barred says through which directories roles cannot pass.
func (d Directory) barred() string {
	return "not every user can pass through " + strings.Join(d.Barriers, ", ")
}

func (f Facts) data() output.Check {
	d := f.Data
	check := good("data-directory", d.found()+" on "+d.Filesystem)
	check.Essential = true
	bad := func(found, consequence, advice string) output.Check {
		check.Level, check.Found, check.Consequence, check.Advice = missing, found, consequence, advice
		return check
	}
	switch {
	case d.Err != nil:
		return bad(d.Err.Error(), "the node has nowhere to keep its data", "Name another data directory.")
	case d.ReadOnly:
		return bad(d.At+" is mounted read-only", "the node has nowhere to keep its data", "Mount it so that it can be written.")
	case d.Writable != nil:
		return bad(d.Writable.Error(), "the node has nowhere to keep its data", "Make the directory and give it to the user of reeved.")
	case d.NoExec:
		return bad(d.At+" is mounted noexec", "plugins are kept there and cannot be executed", "Mount it without noexec, or name another data directory.")
	case f.UID == 0 && len(d.Barriers) > 0:
		return bad(d.barred(), "roles have user IDs of their own and cannot reach their directories",
			"Name a data directory that every user can reach, such as one below /var/lib, or `chmod o+x "+strings.Join(d.Barriers, " ")+"`.")
	}
	return check
}

func (f Facts) space() output.Check {
	d := f.Data
	return d.room("data-space", gib(d.FreeBytes)+" free at "+d.At, "whether there is room for the node's data cannot be said", d.FreeBytes, leastBytes, fewBytes,
		"the plugins and the store of a node do not fit", "the store may run out of room before it reaches its quota", "Make room, or put the data directory on another file system.")
}

func (f Facts) inodes() output.Check {
	d := f.Data
	if d.Err == nil && d.Files == 0 {
		check := good("data-inodes", d.Filesystem+" does not limit them")
		check.Essential = true
		return check
	}
	return d.room("data-inodes", fmt.Sprintf("%d free at %s", d.FreeFiles, d.At), "whether there is room for the node's files cannot be said", d.FreeFiles, leastFiles, fewFiles,
		"the files of a node cannot be made", "roles with many files run out of inodes", "Remove small files, or put the data directory on another file system.")
}

// room judges how much of something is free. Less than least is missing, less than few is a warning.
func (d Directory) room(name, found, unknown string, free, least, few uint64, tooLittle, scarce, advice string) output.Check {
	check := good(name, found)
	check.Essential = true
	switch {
	case d.Err != nil:
		check.Level, check.Found, check.Consequence, check.Advice = warning, "not known", unknown, "See data-directory."
	case free < least:
		check.Level, check.Consequence, check.Advice = missing, tooLittle, advice
	case free < few:
		check.Level, check.Consequence, check.Advice = warning, scarce, advice
	}
	return check
}

func (f Facts) run() output.Check {
	d := f.Run
	check := good("run-directory", d.found()+" on "+d.Filesystem)
	check.Essential = true
	bad := func(found, consequence, advice string) output.Check {
		check.Level, check.Found, check.Consequence, check.Advice = missing, found, consequence, advice
		return check
	}
	switch {
	case len(d.Path) > maxRun:
		return bad(fmt.Sprintf("%s is %d bytes long", d.Path, len(d.Path)), "the sockets of roles do not fit below it, as paths of sockets end at 107 bytes",
			fmt.Sprintf("Name a run directory of at most %d bytes.", maxRun))
	case d.Err != nil:
		return bad(d.Err.Error(), "the node has nowhere to keep its sockets", "Name another run directory.")
	case d.ReadOnly || d.Writable != nil:
		found := d.At + " is mounted read-only"
		if d.Writable != nil {
			found = d.Writable.Error()
		}
		return bad(found, "the node has nowhere to keep its sockets", "Make the directory and give it to the user of reeved.")
	case f.UID == 0 && len(d.Barriers) > 0:
		return bad(d.barred(), "roles have user IDs of their own and cannot reach their sockets",
			"Name a run directory that every user can reach, such as /run/reeve, or `chmod o+x "+strings.Join(d.Barriers, " ")+"`.")
	case d.Filesystem != "tmpfs" && d.Filesystem != "ramfs":
		check.Level = warning
		check.Consequence = "sockets and records of instances are on a disk and are left there when the machine boots"
		check.Advice = "Name a run directory on a tmpfs, such as one below /run."
	}
	return check
}

func gib(size uint64) string { return fmt.Sprintf("%.1f GiB", float64(size)/(1<<30)) }
