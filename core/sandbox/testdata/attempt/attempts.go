package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// attempts are what can be tried: each returns what it found, or why it was refused.
var attempts = map[string]func(argument string) (string, error){
	"status": func(name string) (string, error) {
		text, err := os.ReadFile("/proc/self/status")
		for _, line := range strings.Split(string(text), "\n") {
			if value, ok := strings.CutPrefix(line, name+":"); ok {
				return strings.Join(strings.Fields(value), " "), nil
			}
		}
		return "", err
	},
	"read": func(path string) (string, error) {
		text, err := os.ReadFile(path)
		return string(text), err
	},
	"list": func(path string) (string, error) {
		entries, err := os.ReadDir(path)
		var names []string
		for _, entry := range entries {
			names = append(names, entry.Name())
		}
		return strings.Join(names, " "), err
	},
	"write":  func(path string) (string, error) { return "", os.WriteFile(path, []byte("x"), 0o600) },
	"open":   func(path string) (string, error) { f, err := os.OpenFile(path, os.O_RDWR, 0); return closed(f, err) },
	"mkdir":  func(path string) (string, error) { return "", os.Mkdir(path, 0o700) },
	"remove": func(path string) (string, error) { return "", os.Remove(path) },
	"rename": func(paths string) (string, error) {
		from, to, _ := strings.Cut(paths, " ")
		return "", os.Rename(from, to)
	},
	"stat":      func(path string) (string, error) { _, err := os.Stat(path); return "", err },
	"temporary": func(string) (string, error) { f, err := os.CreateTemp("", "x"); return closed(f, err) },
	"copy-self": func(path string) (string, error) {
		return "", os.WriteFile(path, []byte("\x7fELF"), 0o700)
	},
	"execute": func(path string) (string, error) {
		command := exec.Command(path)
		command.Env = []string{"ATTEMPTS="}
		output, err := command.CombinedOutput()
		return strings.TrimSpace(string(output)), err
	},
	"fork": func(string) (string, error) {
		pid, _, errno := syscall.RawSyscall(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0)
		if errno != 0 {
			return "", errno
		}
		if pid == 0 {
			syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
		_, err := syscall.Wait4(int(pid), nil, 0, nil)
		return "", err
	},
	"unix": func(path string) (string, error) {
		conn, err := net.Dial("unix", path)
		if err != nil {
			return "", err
		}
		defer conn.Close()
		raw, err := conn.(*net.UnixConn).SyscallConn()
		if err != nil {
			return "", err
		}
		var peer *unix.Ucred
		if controlErr := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); controlErr != nil {
			return "", controlErr
		}
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%d %d", peer.Pid, peer.Uid), nil
	},
	"listen-unix": func(path string) (string, error) {
		l, err := net.Listen("unix", path)
		return closed(l, err)
	},
	"listen": func(address string) (string, error) { l, err := net.Listen("tcp", address); return closed(l, err) },
	"dial": func(address string) (string, error) {
		conn, err := net.DialTimeout("tcp", address, 5*time.Second)
		return closed(conn, err)
	},
	"fast-open": func(port string) (string, error) {
		number, err := strconv.Atoi(port)
		if err != nil {
			return "", err
		}
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return "", err
		}
		return "", unix.Sendto(fd, []byte("x"), unix.MSG_FASTOPEN, &unix.SockaddrInet4{Port: number, Addr: [4]byte{127, 0, 0, 1}})
	},
	"socket": func(text string) (string, error) {
		var domain, kind, protocol int
		if _, err := fmt.Sscan(text, &domain, &kind, &protocol); err != nil {
			return "", err
		}
		fd, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC, protocol)
		if err == nil {
			err = unix.Close(fd)
		}
		return "", err
	},
	"interfaces": func(string) (string, error) {
		all, err := net.Interfaces()
		return fmt.Sprint(len(all) > 0), err
	},
	"call": func(text string) (string, error) {
		runtime.LockOSThread() // and never unlocked: a call may change the thread
		var a [7]uintptr
		for i, field := range strings.Fields(text) {
			number, err := strconv.ParseUint(field, 0, 64)
			if err != nil {
				return "", err
			}
			a[i] = uintptr(number)
		}
		_, _, errno := syscall.RawSyscall6(a[0], a[1], a[2], a[3], a[4], a[5], a[6])
		if errno != 0 {
			return "", errno
		}
		return "", nil
	},
	"signal": func(text string) (string, error) {
		pid, err := strconv.Atoi(text)
		if err != nil {
			return "", err
		}
		return "", syscall.Kill(pid, 0)
	},
	"join": func(text string) (string, error) {
		group, err := strconv.Atoi(text)
		if err != nil {
			return "", err
		}
		return "", syscall.Setpgid(0, group)
	},
	"pair": func(text string) (string, error) {
		domain, err := strconv.Atoi(text)
		if err != nil {
			return "", err
		}
		_, err = unix.Socketpair(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		return "", err
	},
	"traced-thread": func(string) (string, error) {
		result := make(chan error)
		var begin func()
		begin = func() {
			runtime.LockOSThread()
			if unix.Gettid() == os.Getpid() {
				go begin() // on another
				time.Sleep(time.Hour)
			}
			_, _, errno := syscall.RawSyscall(unix.SYS_PTRACE, unix.PTRACE_TRACEME, 0, 0)
			if errno != 0 {
				result <- errno
				return
			}
			result <- nil
			time.Sleep(time.Hour)
		}
		go begin()
		return "", <-result
	},
	"group": func(string) (string, error) { return fmt.Sprint(unix.Getpgrp() == os.Getpid()), nil },
	"death-signal": func(text string) (string, error) {
		signal, err := strconv.ParseUint(text, 10, 8)
		if err != nil {
			return "", err
		}
		return "", unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(signal), 0, 0, 0)
	},
	"descriptors": func(string) (string, error) {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			return "", err
		}
		var open []string
		for _, entry := range entries {
			if target, err := os.Readlink("/proc/self/fd/" + entry.Name()); err == nil && !strings.HasPrefix(target, "anon_inode:") && !strings.HasSuffix(target, "/fd") {
				open = append(open, entry.Name())
			}
		}
		return strings.Join(open, " "), nil
	},
	"many-files": func(string) (string, error) {
		for count := 0; count < 1<<20; count++ {
			if _, err := os.Open(os.DevNull); err != nil {
				if errors.Is(err, syscall.EMFILE) {
					return "", err
				}
				return strconv.Itoa(count), err
			}
		}
		return "no end", nil
	},
	"locked-memory": func(string) (string, error) {
		memory, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			return "", err
		}
		return "", unix.Mlock(memory)
	},
}

type closer interface{ Close() error }

func closed(c closer, err error) (string, error) {
	if err != nil {
		return "", err
	}
	return "", c.Close()
}
