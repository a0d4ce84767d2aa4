package procfs

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Connection is an end of a TCP connection, or, with no remote end, a listener.
type Connection struct {
	Local, Remote netip.AddrPort
	// inode is that of the socket.
	inode string
}

// Reversed is the connection as the other end has it.
func (c Connection) Reversed() Connection { return Connection{Local: c.Remote, Remote: c.Local} }

// The states of sockets as the kernel writes them.
const (
	established = "01"
	listening   = "0A"
)

// Connections returns the ends of all TCP connections over IPv4 in the network namespace of the test that are established.
func Connections() ([]Connection, error) { return sockets(established) }

// Listeners returns all listeners for TCP over IPv4 in the network namespace of the test.
func Listeners() ([]Connection, error) { return sockets(listening) }

func sockets(state string) ([]Connection, error) {
	file, err := os.Open("/proc/net/tcp")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var found []Connection
	lines := bufio.NewScanner(file)
	lines.Scan() // the headings
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 10 || fields[3] != state {
			continue
		}
		local, err := endpoint(fields[1])
		remote, errRemote := endpoint(fields[2])
		if err := errors.Join(err, errRemote); err != nil {
			return nil, err
		}
		found = append(found, Connection{Local: local, Remote: remote, inode: fields[9]})
	}
	return found, lines.Err()
}

// endpoint reads an address as the kernel writes it: four bytes, the last one first, and a port.
func endpoint(text string) (netip.AddrPort, error) {
	host, port, _ := strings.Cut(text, ":")
	address, err := hex.DecodeString(host)
	number, errPort := strconv.ParseUint(port, 16, 16)
	if err != nil || errPort != nil || len(address) != 4 {
		return netip.AddrPort{}, fmt.Errorf("/proc/net/tcp has the address %q", text)
	}
	slices.Reverse(address)
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(address)), uint16(number)), nil
}

// Of returns those of the connections that a process has open. None are of a process that has ended.
func (p Process) Of(connections []Connection) ([]Connection, error) {
	directory := filepath.Join("/proc", strconv.Itoa(p.PID), "fd")
	entries, err := os.ReadDir(directory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	open := make(map[string]bool)
	for _, entry := range entries {
		if target, err := os.Readlink(filepath.Join(directory, entry.Name())); err == nil {
			open[strings.TrimSuffix(strings.TrimPrefix(target, "socket:["), "]")] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(connections), func(c Connection) bool { return !open[c.inode] }), nil
}
