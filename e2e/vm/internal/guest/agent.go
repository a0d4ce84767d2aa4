package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/e2e/vm/internal/guestapi"
)

// serve does what the test says, until the machine is switched off.
func serve() error {
	port, err := openPort(guestapi.Port)
	if err != nil {
		return err
	}
	server := rpc.NewServer()
	if err := server.RegisterName(guestapi.Service, &agent{started: make(map[int]*started)}); err != nil {
		return err
	}
	server.ServeConn(port)
	return errors.New("the test does not listen any more")
}

// openPort opens the virtio-serial port of a name.
func openPort(name string) (*os.File, error) {
	for deadline := time.Now().Add(deviceTimeout); ; {
		files, err := filepath.Glob("/sys/class/virtio-ports/*/name")
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			if content, err := os.ReadFile(file); err != nil || strings.TrimSpace(string(content)) != name {
				continue
			}
			// Blocking, since it is read by one goroutine and written by others for as long as the machine runs.
			device := filepath.Join("/dev", filepath.Base(filepath.Dir(file)))
			fd, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC, 0)
			if err != nil {
				return nil, fmt.Errorf("open %s: %w", device, err)
			}
			return os.NewFile(uintptr(fd), device), nil
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("there is no port %s", name)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// agent is the service of the guest.
type agent struct {
	mu      sync.Mutex
	started map[int]*started
}

// started is a program that runs beside the calls.
type started struct {
	done   chan struct{}
	result guestapi.Result
}

// Hello answers as soon as the machine is there.
func (a *agent) Hello(_ struct{}, reply *guestapi.Hello) error {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return err
	}
	up, err := uptime()
	*reply = guestapi.Hello{Kernel: unix.ByteSliceToString(name.Release[:]), Uptime: up}
	return err
}

// uptime is how long the kernel has been running, by the clock that nobody sets.
func uptime() (time.Duration, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0, err
	}
	return time.Duration(now.Nano()), nil
}

// Run runs a program to its end.
func (a *agent) Run(command guestapi.Command, reply *guestapi.Result) error {
	if command.Timeout == 0 {
		command.Timeout = time.Minute
	}
	ctx, cancel := context.WithTimeout(context.Background(), command.Timeout)
	defer cancel()
	run := exec.CommandContext(ctx, command.Arguments[0], command.Arguments[1:]...)
	// What the program left behind may hold its output open.
	run.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	run.Stdin, run.Stdout, run.Stderr = bytes.NewReader(command.Stdin), &stdout, &stderr
	begin := time.Now()
	err := run.Run()
	*reply = ended(run.ProcessState, time.Since(begin))
	reply.Stdout, reply.Stderr = stdout.Bytes(), stderr.Bytes()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%s did not end within %s; it wrote: %s%s", strings.Join(command.Arguments, " "), command.Timeout, &stdout, &stderr)
	case err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay):
		return err
	}
	return nil
}

func ended(state *os.ProcessState, took time.Duration) guestapi.Result {
	result := guestapi.Result{Took: took, Code: -1}
	if state == nil {
		return result
	}
	result.Code = state.ExitCode()
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		result.Signal = status.Signal().String()
	}
	return result
}

// Start starts a program that runs on, and returns its ID.
func (a *agent) Start(command guestapi.Command, pid *int) error {
	log, err := os.OpenFile(command.Log, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	run := exec.Command(command.Arguments[0], command.Arguments[1:]...)
	run.Stdout, run.Stderr = log, log
	run.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	begin := time.Now()
	if err := run.Start(); err != nil {
		return err
	}
	s := &started{done: make(chan struct{})}
	go func() {
		_ = run.Wait() // The result says it.
		s.result = ended(run.ProcessState, time.Since(begin))
		close(s.done)
	}()
	a.mu.Lock()
	defer a.mu.Unlock()
	*pid = run.Process.Pid
	a.started[*pid] = s
	return nil
}

// Wait waits for the end of a program that was started.
func (a *agent) Wait(wait guestapi.Wait, reply *guestapi.Result) error {
	a.mu.Lock()
	s := a.started[wait.PID]
	a.mu.Unlock()
	if s == nil {
		return fmt.Errorf("no program %d was started", wait.PID)
	}
	select {
	case <-s.done:
		*reply = s.result
		return nil
	case <-time.After(wait.Timeout):
		return fmt.Errorf("the program %d has not ended within %s", wait.PID, wait.Timeout)
	}
}

// ReadFile reads a file.
func (a *agent) ReadFile(path string, content *[]byte) (err error) {
	*content, err = os.ReadFile(path)
	return err
}

// ReadTail reads what a file has from an offset on.
func (a *agent) ReadTail(tail guestapi.Tail, reply *guestapi.Read) (err error) {
	file, err := os.Open(tail.Path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	if reply.Content, err = io.ReadAll(io.NewSectionReader(file, tail.Offset, 1<<20)); err != nil {
		return err
	}
	reply.Uptime, err = uptime()
	return err
}

// WriteFile writes a file, and makes the directories above it.
func (a *agent) WriteFile(file guestapi.File, _ *struct{}) error {
	if err := os.MkdirAll(filepath.Dir(file.Path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file.Path, file.Content, os.FileMode(file.Mode))
}

// SetClock sets the clock of the machine.
func (a *agent) SetClock(now time.Time, _ *struct{}) error {
	value := unix.NsecToTimeval(now.UnixNano())
	return unix.Settimeofday(&value)
}

// End stops the machine. The call is never answered.
func (a *agent) End(end guestapi.End, _ *struct{}) error {
	unix.Sync()
	if end != guestapi.PowerOff {
		return fmt.Errorf("there is no end %d", end)
	}
	return unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}
