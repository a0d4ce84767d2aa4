package command_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// lifelineVariable is the environment variable that names the socket of a lifeline.
const lifelineVariable = "FAKE_LIFELINE"

// lifeline ends the programs that a test has started, in whatever way the test ends: each of them holds a connection to the test's process, which the kernel
// closes even if that process is killed, and then ends by itself. A reeved is in a session of its own, so nothing else would end it.
type lifeline struct {
	listener *net.UnixListener
	done     chan struct{}

	mu   sync.Mutex
	held []held
}

// held is a program that runs, or has run: a pidfd is never another's.
type held struct {
	conn  net.Conn
	pidfd int
}

// holdPrograms listens at the path of a socket for programs that call endWithTest.
func holdPrograms(path string) (*lifeline, error) {
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l := &lifeline{listener: listener, done: make(chan struct{})}
	go l.accept()
	return l, nil
}

func (l *lifeline) accept() {
	defer close(l.done)
	for {
		conn, err := l.listener.AcceptUnix()
		if err != nil {
			return
		}
		pidfd, err := peerOf(conn)
		if err != nil {
			_ = conn.Close() // it has ended already, or ends now
			continue
		}
		l.mu.Lock()
		l.held = append(l.held, held{conn, pidfd})
		l.mu.Unlock()
		// The program waits for this, so that nothing runs that is not held.
		_, _ = conn.Write([]byte{1})
	}
}

// peerOf is a pidfd of the program at the other end.
func peerOf(conn *net.UnixConn) (int, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	pidfd, pidErr := -1, error(nil)
	err = raw.Control(func(fd uintptr) {
		var user *unix.Ucred
		if user, pidErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); pidErr == nil {
			pidfd, pidErr = unix.PidfdOpen(int(user.Pid), 0)
		}
	})
	if err == nil {
		err = pidErr
	}
	return pidfd, err
}

// end ends every program that still runs, and returns when it has ended.
func (l *lifeline) end() {
	_ = l.listener.Close()
	<-l.done
	for _, program := range l.held {
		_ = program.conn.Close()
	}
	for _, program := range l.held {
		if !endsWithin(program.pidfd, 10*time.Second) {
			_ = unix.PidfdSendSignal(program.pidfd, unix.SIGKILL, nil, 0)
			endsWithin(program.pidfd, 10*time.Second)
		}
		_ = unix.Close(program.pidfd)
	}
}

func endsWithin(pidfd int, patience time.Duration) bool {
	for deadline := time.Now().Add(patience); ; {
		left := time.Until(deadline)
		if left <= 0 {
			return false
		}
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
		if err == nil && ready > 0 {
			return true
		}
	}
}

// endWithTest has this program end when the test ends that started it, if the environment names a lifeline.
func endWithTest() error {
	path := os.Getenv(lifelineVariable)
	if path == "" {
		return nil
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		return fmt.Errorf("the test that started this has ended: %w", err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		return fmt.Errorf("the test that started this has ended: %w", err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, conn)
		os.Exit(1)
	}()
	return nil
}
