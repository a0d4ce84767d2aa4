package hostapi

import (
	"errors"
	"fmt"
	"net"

	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/sdk/peercred"
)

// checkPeer returns why a connection's peer is not the instance; nil if it is. Where instances share a user, the peer must belong to the instance's
// process group, so nobody is admitted before its process is known.
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
		return fmt.Errorf("process %d connected before the instance's process was started", peer.PID)
	}
	if peer.PID <= 0 {
		return errors.New("the peer is in another PID namespace")
	}
	if err := process.CheckMember(peer.PID); err != nil {
		return err
	}
	return peercred.CheckAlive(conn)
}
