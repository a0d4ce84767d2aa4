package hostapi

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/sdk/peercred"
)

// checkPeer says why the process at the other end of a connection is not the instance's; nil if it is. Where instances share a user, it is that it belongs to
// the instance's process group: before the process of an instance is known nobody does.
func checkPeer(conn *net.UnixConn, remit *plugin.Remit) error {
	peer, err := peercred.Of(conn)
	if err != nil {
		return err
	}
	if peer.UID != remit.UID {
		return fmt.Errorf("process %d has user ID %d, not the instance's %d", peer.PID, peer.UID, remit.UID)
	}
	if !remit.SharedUID {
		return nil
	}
	process, known := remit.Process()
	if !known {
		return fmt.Errorf("process %d connects before the instance's has been started", peer.PID)
	}
	if peer.PID <= 0 {
		return errors.New("the peer is in another PID namespace")
	}
	if err := process.CheckMember(peer.PID); err != nil {
		return err
	}
	return checkAlive(conn)
}

// checkAlive fails if the process that made the connection has ended: what was read of its PID may be another's then. Kernels before 6.5 cannot say; there the
// rest of the check stands alone.
func checkAlive(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	pidfd, sockErr := -1, error(nil)
	if err := raw.Control(func(fd uintptr) {
		pidfd, sockErr = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	}); err != nil {
		return err
	}
	switch {
	case errors.Is(sockErr, unix.ENOPROTOOPT):
		return nil
	case sockErr != nil:
		return fmt.Errorf("SO_PEERPIDFD: %w", sockErr)
	}
	defer func() { _ = unix.Close(pidfd) }()
	if err := unix.PidfdSendSignal(pidfd, 0, nil, 0); err != nil && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("the process that connected has ended: %w", err)
	}
	return nil
}
