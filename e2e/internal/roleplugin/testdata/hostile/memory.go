package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// executeMemfd runs a program that is nowhere but in memory. It is to have the same sandbox as the role: what is tried is that it does not. The test gives a
// copy of the executable for it, since a role cannot read what it runs from where it has a user of its own.
func executeMemfd(a *attempt) {
	source, err := os.Open(a.arguments["copy"])
	if err != nil {
		a.note("read a copy of its executable", say(err))
		return
	}
	defer source.Close()
	fd, err := unix.MemfdCreate("program", 0)
	if err != nil {
		a.result.Values["refused"] = "memfd_create"
		a.note("memfd_create", say(err))
		return
	}
	memory := os.NewFile(uintptr(fd), "program")
	defer memory.Close()
	if _, err := io.Copy(memory, source); err != nil {
		a.note("copy it", say(err))
		return
	}
	environment := []string{"HOSTILE_PATHS=" + a.arguments["paths"]}
	byPath := exec.Command(fmt.Sprintf("/proc/self/fd/%d", fd))
	byPath.Env = append(environment, childVariable+"=escape")
	a.fromMemory("execve of a memfd by /proc", byPath)
	byDescriptor := exec.Command("/proc/self/exe")
	byDescriptor.Env = append(environment, childVariable+"=memory")
	byDescriptor.ExtraFiles = []*os.File{memory}
	a.fromMemory("execveat of a memfd", byDescriptor)
}

// fromMemory runs a command and takes what it says of its tries for the role's own.
func (a *attempt) fromMemory(how string, command *exec.Cmd) {
	output, err := command.Output()
	ran := false
	for line := range strings.Lines(string(output)) {
		what, answer, found := strings.Cut(strings.TrimSpace(line), "\t")
		if !found {
			continue
		}
		ran = true
		a.result.Tries = append(a.result.Tries, try{What: how + ": " + what, Answer: answer, Through: answer == "done"})
	}
	if ran {
		a.result.Values["ran"] += how + "; "
		a.note(how, "it runs")
		return
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		err = errors.New(strings.TrimSpace(string(exit.Stderr)))
	}
	a.result.Values["refused"] += how + "; "
	a.note(how, fmt.Sprint(err))
}

// executeMemory becomes the program in the memfd that it was given as descriptor 3.
func executeMemory() {
	arguments, err := syscall.SlicePtrFromStrings([]string{"program"})
	if err == nil {
		var variables []*byte
		variables, err = syscall.SlicePtrFromStrings([]string{childVariable + "=escape", "HOSTILE_PATHS=" + os.Getenv("HOSTILE_PATHS")})
		if err == nil {
			err = system(unix.SYS_EXECVEAT, 3, text(""), pointer(&arguments[0]), pointer(&variables[0]), unix.AT_EMPTY_PATH)
		}
	}
	fmt.Fprintln(os.Stderr, say(err))
}

// escape tries what the role itself cannot do, and says what it has of the sandbox.
func escape() {
	tell := func(what string, err error) {
		answer := "done"
		if err != nil {
			answer = say(err)
		}
		fmt.Printf("%s\t%s\n", what, answer)
	}
	// Each of these lines says through if it is not as it must be in a sandbox.
	sandboxOf("/proc/self/status", tell)
	for _, path := range strings.Fields(os.Getenv("HOSTILE_PATHS")) {
		tell("read "+path, readable(path))
	}
	tell("unshare a user namespace", unix.Unshare(unix.CLONE_NEWUSER))
	tell("become root", system(unix.SYS_SETRESUID, 0, 0, 0))
	tell("write to /etc", os.WriteFile("/etc/hostile-was-here", nil, 0o644))
	tell("bpf", system(unix.SYS_BPF, 0, 0, 0))
	tell("execute a shell", exec.Command("/bin/sh", "-c", "true").Run())
}
