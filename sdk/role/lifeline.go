package role

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/peer"

	"github.com/reeveproject/reeve/sdk/peercred"
)

// lifeline holds the process of the core that started a role that ends with its core.
type lifeline struct {
	file *os.File
}

// newLifeline opens the process that makes the call of ctx. It waits for the answer, so its process ID is not reused.
func newLifeline(ctx context.Context) (*lifeline, error) {
	caller, _ := peer.FromContext(ctx)
	if caller == nil {
		return nil, fmt.Errorf("the call does not come from a connection")
	}
	info, ok := caller.AuthInfo.(peercred.Info)
	if !ok {
		return nil, fmt.Errorf("the caller's process is not known: %T", caller.AuthInfo)
	}
	descriptor, err := unix.PidfdOpen(info.Peer.PID, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("pidfd_open %d: %w", info.Peer.PID, err)
	}
	return &lifeline{file: os.NewFile(uintptr(descriptor), "core")}, nil
}

// wait waits until the process has ended. It returns false if the lifeline was closed before.
func (l *lifeline) wait() bool {
	connection, err := l.file.SyscallConn()
	if err != nil {
		return false
	}
	err = connection.Read(func(descriptor uintptr) bool {
		polled := []unix.PollFd{{Fd: int32(descriptor), Events: unix.POLLIN}}
		n, err := unix.Poll(polled, 0)
		return err == nil && n == 1
	})
	return err == nil
}

// close ends wait.
func (l *lifeline) close() { _ = l.file.Close() }
