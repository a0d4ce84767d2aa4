package roletest

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/sdk/role"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// door is a socket of a host. It belongs to one role.
type door struct {
	server *grpc.Server // nil while not served
	served chan struct{}
}

// caller answers the calls on a role's socket.
type caller struct {
	*Host
	role string
}

// Socket is the path of a host socket that belongs to no role: callers there get no SVID.
func (h *Host) Socket() string { return h.socket("") }

func (h *Host) socket(role string) string {
	if role == "" {
		role = "host"
	} else {
		role = "of-" + role
	}
	return filepath.Join(h.directory, role+".sock")
}

// socketOf returns the path of a role's host socket.
func (h *Host) socketOf(t testing.TB, role string) string {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.doors[role] == nil {
		h.doors[role] = &door{}
		if h.open {
			if err := h.serve(role); err != nil {
				t.Fatal(err)
			}
		}
	}
	return h.socket(role)
}

// RoleSocket returns the path of a role's host socket, for a process that Launch did not start. It is served from now on, while the host is.
func (h *Host) RoleSocket(t testing.TB, role string) string {
	t.Helper()
	return h.socketOf(t, role)
}

// Serve serves the host sockets again after Stop, like a restarted core.
func (h *Host) Serve() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open = true
	for role := range h.doors {
		if err := h.serve(role); err != nil {
			return err
		}
	}
	return nil
}

// serve serves one socket. The caller holds mu.
func (h *Host) serve(of string) error {
	listener, err := net.Listen("unix", h.socket(of))
	if err != nil {
		return err
	}
	server, served := grpc.NewServer(grpc.MaxRecvMsgSize(role.MaxMessageSize), grpc.UnaryInterceptor(h.unary), grpc.StreamInterceptor(h.stream)), make(chan struct{})
	hostv1.RegisterHostServiceServer(server, &caller{Host: h, role: of})
	h.doors[of].server, h.doors[of].served = server, served
	go func() {
		defer close(served)
		_ = server.Serve(listener) // ends with Stop
	}()
	return nil
}

// Stop closes all connections and removes the sockets, like the death of a core. The values stay.
func (h *Host) Stop() {
	h.mu.Lock()
	h.open = false
	var open []door
	for _, door := range h.doors {
		if door.server != nil {
			open = append(open, *door)
			door.server = nil
		}
	}
	h.mu.Unlock()
	for _, door := range open {
		door.server.Stop()
		<-door.served
	}
}

// IssueSVID implements hostv1.HostServiceServer.
func (c *caller) IssueSVID(_ context.Context, request *hostv1.IssueSVIDRequest) (*hostv1.IssueSVIDResponse, error) {
	c.called("IssueSVID")
	c.mu.Lock()
	split := c.split
	c.mu.Unlock()
	switch {
	case c.role == "":
		return nil, status.Error(codes.FailedPrecondition, "this socket belongs to no role: use Process.Start or Host.Instance")
	case split:
		return nil, status.Error(codes.Unavailable, "no curator can be reached: the node is Split")
	}
	return c.authority.issue(c.nodeID, c.role, request.GetCertificateRequest())
}

// WatchTrust implements hostv1.HostServiceServer.
func (c *caller) WatchTrust(_ *hostv1.WatchTrustRequest, stream grpc.ServerStreamingServer[hostv1.WatchTrustResponse]) error {
	defer c.opened("WatchTrust")()
	return send(stream.Context(), &c.authority.trust, stream.Send)
}
