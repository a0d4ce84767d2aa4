package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

var binaryAttempts = map[string]func(*attempt){
	"binary.replace": replaceBinary,
	"binary.other":   executeOther,
	"binary.memfd":   executeMemfd,
	"binary.setuid":  executeSetuid,
}

// replaceBinary tries to change the bytes that it runs from, or that will run next time.
func replaceBinary(a *attempt) {
	a.try("open /proc/self/exe for writing", openFor("/proc/self/exe", os.O_WRONLY))
	a.try("open /proc/self/exe for writing, truncated", openFor("/proc/self/exe", os.O_RDWR|os.O_TRUNC))
	if path, err := os.Readlink("/proc/self/exe"); err == nil {
		path = strings.TrimSuffix(path, " (deleted)")
		a.try("open its path for writing", openFor(path, os.O_WRONLY))
		a.try("make a file beside it", os.WriteFile(path+".new", []byte("x"), 0o755))
		a.try("rename it", os.Rename(path, path+".old"))
		a.try("remove it", os.Remove(path))
		a.try("change its mode", os.Chmod(path, 0o777))
		a.try("link to it", linkTo(path, a.data("link")))
	}
	if fd, err := unix.Open("/proc/self/exe", unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
		a.note("read its own executable", "can be read")
		a.try("open it again by /proc/self/fd for writing", openFor(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_WRONLY))
		a.try("seal it", ignoreSealed(fd))
		a.try("truncate it by its descriptor", unix.Ftruncate(fd, 0))
		if a.try("make it not executable by its descriptor", unix.Fchmod(fd, 0)) {
			_ = unix.Fchmod(fd, 0o777)
		}
		_ = unix.Close(fd)
	}
	for _, path := range a.ways("paths") {
		a.try("open "+path+" for writing", openFor(path, os.O_WRONLY))
		name := filepath.Join(path, "hostile")
		if a.try("make a file in "+path, os.WriteFile(name, []byte("x"), 0o755)) {
			_ = os.Remove(name)
		}
	}
}

// ignoreSealed tries to add a seal to an executable: the core's own copies are sealed, and nothing else can be.
func ignoreSealed(fd int) error {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE)
	return err
}

// executeOther runs programs that are not its own executable.
func executeOther(a *attempt) {
	own := a.data("program")
	if content, err := os.ReadFile("/proc/self/exe"); err == nil {
		_ = os.WriteFile(own, content, 0o755)
	} else {
		// Any program would do: the smallest that there can be is a script.
		_ = os.WriteFile(own, []byte("#!/bin/sh\nexit 0\n"), 0o755)
	}
	defer os.Remove(own)
	for _, path := range append([]string{own, a.runtimeCopy(own), "/bin/sh", "/usr/bin/env", "/usr/bin/id"}, a.list("programs")...) {
		command := exec.Command(path)
		command.Env = []string{childVariable + "=exit"}
		err := command.Run()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = nil // it ran
		}
		a.try("execute "+path, err)
	}
	_ = os.Remove(a.runtimeCopy(own))
	// By the loader, which needs to read and to map and not to execute.
	for _, loader := range []string{"/lib64/ld-linux-x86-64.so.2", "/lib/ld-musl-x86_64.so.1"} {
		if _, err := os.Stat(loader); err == nil {
			err := exec.Command(loader, "/bin/true").Run()
			a.try("execute /bin/true by "+loader, err)
		}
	}
}

func (a *attempt) runtimeCopy(path string) string {
	copied := a.runtime("program")
	if content, err := os.ReadFile(path); err == nil {
		_ = os.WriteFile(copied, content, 0o755)
	}
	return copied
}

// executeSetuid runs programs that would be root.
func executeSetuid(a *attempt) {
	for _, path := range []string{"/usr/bin/su", "/bin/su", "/usr/bin/sudo", "/usr/bin/passwd", "/usr/bin/newgrp", "/usr/bin/chfn", "/usr/bin/mount", "/usr/bin/ping", "/bin/ping"} {
		err := exec.Command(path, "--help").Run()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = nil
		}
		a.try("execute "+path, err)
	}
	if output, err := exec.Command("/usr/bin/su", "-c", "id -u").Output(); err == nil && strings.TrimSpace(string(output)) == "0" {
		a.try("become root by su", nil)
	}
}
