package hostapi

import (
	"errors"
	"fmt"
	"net"

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
	return peercred.CheckAlive(conn)
}
