package door

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/credentials"

	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/sdk/peercred"
)

// transport is the server's transport credentials: nothing is exchanged, the kernel says who the peer is.
type transport struct{}

var _ credentials.TransportCredentials = transport{}

// ServerHandshake refuses a peer that is not the instance whose socket it connected to, and tells etcd the instance's user.
func (transport) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, ok := raw.(*connection)
	if !ok {
		return nil, nil, fmt.Errorf("a connection that was not accepted here: %T", raw)
	}
	if err := checkPeer(c); err != nil {
		c.of.noteRefusal(err)
		return nil, nil, err
	}
	return c, store.Identity(c.of.instance.ConsensusUser), nil
}

// ClientHandshake is not for this side.
func (transport) ClientHandshake(_ context.Context, _ string, _ net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("only for servers")
}

func (transport) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "peercred"}
}

func (t transport) Clone() credentials.TransportCredentials { return t }

func (transport) OverrideServerName(string) error { return nil }

func checkPeer(c *connection) error {
	instance := c.of.instance
	peer, err := peercred.Of(c.UnixConn)
	if err != nil {
		return err
	}
	if peer.UID != instance.Uid {
		return fmt.Errorf("process %d has user ID %d, not the instance's %d", peer.PID, peer.UID, instance.Uid)
	}
	if instance.ProcessGroup == 0 {
		return nil
	}
	return checkGroup(c, peer.PID, instance)
}

// checkGroup refuses a process that is not in the instance's process group. Process IDs are used again, so what is read of one counts only if
// the process still lives after it was read.
func checkGroup(c *connection, pid int, instance *consensusv1.AccessInstance) error {
	if pid <= 0 {
		return errors.New("the peer is in another PID namespace")
	}
	group, err := unix.Getpgid(pid)
	if err != nil {
		return fmt.Errorf("process group of process %d: %w", pid, err)
	}
	if int64(group) != instance.ProcessGroup {
		return fmt.Errorf("process %d is in process group %d, not in the instance's %d", pid, group, instance.ProcessGroup)
	}
	start, err := startOf(group)
	if err != nil {
		return fmt.Errorf("leader of process group %d: %w", group, err)
	}
	if start != instance.ProcessGroupStart {
		return fmt.Errorf("process group %d is not the instance's: its leader started at %d, not at %d", group, start, instance.ProcessGroupStart)
	}
	return peercred.CheckAlive(c.UnixConn)
}

// startOf returns when a process started: field 22 of /proc/PID/stat. The second field, the name, may contain anything but ends with the
// last parenthesis.
func startOf(pid int) (uint64, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const start = 22 - 3 // the fields after the name begin with the third
	if len(fields) <= start {
		return 0, fmt.Errorf("/proc/%d/stat has no start time", pid)
	}
	return strconv.ParseUint(string(fields[start]), 10, 64)
}
