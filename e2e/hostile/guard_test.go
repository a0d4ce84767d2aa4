package hostile

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/e2e/internal/procfs"
)

// guardVariable has the test's executable be its guard: the value is the directory of the test.
const guardVariable = "HOSTILE_GUARD"

// startGuard starts a process that ends the nodes of the test if the test is ended before it can do so itself: by the time-out of go test, or killed. It learns
// of that by the end of its standard input. release says that there is nothing left to do for it.
func startGuard(base string) (release func(), err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	guard := exec.Command(program)
	guard.Env = append(os.Environ(), guardVariable+"="+base)
	// Nothing of the test's own is held: go test waits for whoever holds its output.
	guard.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	guard.Dir = "/"
	input, err := guard.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := guard.Start(); err != nil {
		return nil, err
	}
	return func() {
		_, _ = io.WriteString(input, "done")
		_ = input.Close()
		_ = guard.Wait()
	}, nil
}

// guard waits for the end of the test, and then for as long as it takes to end what it has left.
func guard(base string) {
	if last, _ := io.ReadAll(os.Stdin); string(last) == "done" {
		return
	}
	directories, _ := filepath.Glob(filepath.Join(base, "*", "*", "d"))
	for _, directory := range directories {
		stopNode(base, directory)
	}
	for range 100 {
		left := processesOf(base)
		for _, p := range left {
			if handle, err := procfs.Hold(p); err == nil {
				_ = handle.Signal(unix.SIGKILL)
				_ = handle.Close()
			}
		}
		if len(left) == 0 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	lines := slices.Collect(strings.Lines(string(mounts)))
	slices.Reverse(lines)
	for _, line := range lines {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], base+"/") {
			_ = unix.Unmount(fields[4], unix.MNT_DETACH)
		}
	}
	_ = os.RemoveAll(base)
}

// stopNode stops the node of a dev directory as its user would, and else kills its core and has its roles stopped.
func stopNode(base, directory string) {
	var owner unix.Stat_t
	if unix.Stat(directory, &owner) != nil {
		return
	}
	run := func(program string, arguments ...string) error {
		ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
		defer cancel()
		command := exec.CommandContext(ctx, filepath.Join(base, "bin", program), append(arguments, "--dir", directory)...)
		command.Dir = filepath.Dir(directory)
		command.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + filepath.Dir(directory), "XDG_RUNTIME_DIR=" + filepath.Dir(directory)}
		if isRoot() && owner.Uid != 0 {
			command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}}
		}
		return command.Run()
	}
	if run("reeve", "dev", "down") == nil {
		return
	}
	for _, p := range processesOf(base) {
		if filepath.Base(p.Executable) != "reeved" || !slices.ContainsFunc(p.Arguments, func(a string) bool { return strings.HasPrefix(a, directory+"/") }) {
			continue
		}
		if handle, err := procfs.Hold(p); err == nil {
			_ = handle.Signal(unix.SIGKILL)
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			_ = handle.Wait(ctx)
			cancel()
			_ = handle.Close()
		}
	}
	_ = run("reeved", "reap")
}

// processesOf are the processes that run something of the test's directory, or in it: nobody else's are there.
func processesOf(base string) (found []procfs.Process) {
	all, _ := procfs.All()
	for _, p := range all {
		inside := strings.HasPrefix(p.Executable, base+"/") || slices.ContainsFunc(p.Arguments, func(a string) bool { return strings.HasPrefix(a, base+"/") })
		if inside && !p.Ended() && p.PID != os.Getpid() {
			found = append(found, p)
		}
	}
	return found
}
