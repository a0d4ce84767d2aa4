package role

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/reeveproject/reeve/proto/limits"
	"github.com/reeveproject/reeve/sdk/event"
	"github.com/reeveproject/reeve/sdk/peercred"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// maxReconnect is the longest pause between attempts to reconnect to the core. A restarted core serves the socket within about 100 ms, and dialing a
// Unix socket costs almost nothing.
const maxReconnect = 200 * time.Millisecond

// Host is what the node offers to a running role, and how the role reports its status. It is safe for concurrent use until Run has returned.
type Host struct {
	request *rolev1.StartRequest
	log     hclog.Logger
	status  *statusValue
	conn    *grpc.ClientConn
	client  hostv1.HostServiceClient

	// ctx lives as long as the instance, longer than Run's context: a Run that is stopping can still call the host.
	ctx       context.Context
	cancel    context.CancelFunc
	mu        sync.Mutex
	closed    bool
	stopped   atomic.Int32 // a StopReason
	following sync.WaitGroup

	membership event.Value[*hostv1.Membership]
	directory  event.Value[*hostv1.Directory]
	network    event.Value[[]string]
	peers      event.Value[[]string]
	operators  event.Value[*hostv1.Operators]
	once       struct{ membership, directory, network, operators sync.Once }

	prover      prover
	connections connections
}

// newHost makes the host of an instance that stops when stopping is closed.
func newHost(request *rolev1.StartRequest, status *statusValue, log hclog.Logger, stopping <-chan struct{}) (*Host, error) {
	socket, core := request.GetHostSocket(), request.GetCoreUid()
	dialer := &net.Dialer{}
	conn, err := grpc.NewClient("passthrough:///host",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		}),
		grpc.WithAuthority("localhost"),
		grpc.WithTransportCredentials(peercred.Credentials(func(peer peercred.Peer) error {
			if peer.UID != core {
				return fmt.Errorf("host socket %s: user %d listens there, not the core's user %d", socket, peer.UID, core)
			}
			return nil
		})),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxReconnect},
			MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true),
			grpc.MaxCallRecvMsgSize(MaxMessageSize), grpc.MaxCallSendMsgSize(MaxMessageSize)),
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
			return invoke(ctx, method, request, reply, conn, patience(stopping, options)...)
		}),
		grpc.WithStreamInterceptor(func(ctx context.Context, description *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
			return open(ctx, description, conn, method, patience(stopping, options)...)
		}),
	)
	if err != nil {
		return nil, fmt.Errorf("host socket %s: %w", socket, err)
	}
	host := &Host{request: request, log: log, status: status, conn: conn, client: hostv1.NewHostServiceClient(conn)}
	host.ctx, host.cancel = context.WithCancel(context.Background())
	return host, nil
}

// patience lets a call wait for a core that is away, except while the role stops: a core that comes back does not serve an ending instance, and the
// grace period is short.
func patience(stopping <-chan struct{}, options []grpc.CallOption) []grpc.CallOption {
	select {
	case <-stopping:
		return append(slices.Clip(options), grpc.WaitForReady(false))
	default:
		return options
	}
}

// close ends the host's background work and waits for it.
func (h *Host) close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.cancel()
	h.following.Wait()
	if err := h.conn.Close(); err != nil {
		h.log.Debug("closing the connection to the core", "error", err)
	}
}

// background runs a function that must end with h.ctx. It returns false if the host is closed.
func (h *Host) background(function func()) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.following.Go(function)
	return true
}

// InstanceID is "<node ID>/<role>/<counter>". It differs after every start.
func (h *Host) InstanceID() string { return h.request.GetInstanceId() }

// NodeID is the ID of the role's node.
func (h *Host) NodeID() string { return h.request.GetNodeId() }

// Role is the name of the running role.
func (h *Host) Role() string { return h.request.GetRole() }

// DataDirectory is a persistent directory that only this role of this node can enter.
func (h *Host) DataDirectory() string { return h.request.GetDataDirectory() }

// RuntimeDirectory is a directory in memory that only this instance can enter and that is removed with it: the place for sockets.
func (h *Host) RuntimeDirectory() string { return h.request.GetRuntimeDirectory() }

// Configuration is the role's configuration as a JSON document; empty if none was set. It does not change while the instance lives. Decode decodes
// it.
func (h *Host) Configuration() []byte { return []byte(h.request.GetConfiguration()) }

// Grants are the powers of the host that the role is granted, for its information; the core checks every call. They do not change while the instance
// lives.
func (h *Host) Grants() []Grant { return grantsOf(h.request) }

func grantsOf(request *rolev1.StartRequest) []Grant {
	grants := make([]Grant, 0, len(request.GetGrants()))
	for _, grant := range request.GetGrants() {
		grants = append(grants, Grant{Name: grant.GetName(), Parameters: maps.Clone(grant.GetParameters())})
	}
	return grants
}

// Logger writes JSON lines to standard error. The core keeps them and shows them with role and instance as fields.
func (h *Host) Logger() hclog.Logger { return h.log }

// Ready says that the role does its work. It may be called again after Degraded or Blocked.
func (h *Host) Ready() { h.status.enter(rolev1.RoleState_ROLE_STATE_READY, "") }

// Degraded says that the role runs but cannot do its work properly, and why.
func (h *Host) Degraded(reason string) {
	h.status.enter(rolev1.RoleState_ROLE_STATE_DEGRADED, reason)
}

// Blocked says that the role can do nothing until something outside it changes: the machine lacks a program, a device or a kernel module. The reason
// names everything that is missing. The process is not restarted: the role itself checks again every few seconds and calls Ready, Degraded or
// Blocked. Return an error from Run if a new process would help, and call Degraded if part of the work is done. An older core shows Starting.
func (h *Host) Blocked(reason string) {
	state := rolev1.RoleState_ROLE_STATE_BLOCKED
	if !slices.Contains(h.request.GetLaterStates(), state) {
		state = rolev1.RoleState_ROLE_STATE_STARTING
	}
	h.status.enter(state, reason)
}

// SetEndpoint publishes that the instance serves something at an address (a URL or host:port). The name is a capability or a name of the role, such
// as "http". An empty address withdraws it. There are at most 32 endpoints. A name is one line of at most 64 bytes, an address one of at most 512,
// and endpoints and values together have at most 32 KiB. What does not fit is ignored and logged; an address that was set before stays.
func (h *Host) SetEndpoint(name, address string) {
	switch {
	case !limits.NameOK(name):
		h.log.Error("ignored an endpoint: its name is not one line of UTF-8 of the right length",
			"endpoint", limits.Cut(name, limits.Name), "bytes", len(name), "allowed", limits.Name)
	case len(address) > limits.Address || !limits.Line(address):
		h.log.Error("ignored an endpoint: its address is not one line of UTF-8 or is too long",
			"endpoint", name, "bytes", len(address), "allowed", limits.Address)
	case !h.status.setEndpoint(name, address):
		h.log.Error("ignored an endpoint: there are too many, or endpoints and values together are too large",
			"endpoint", name, "allowed", limits.Endpoints, "allowed_bytes", limits.Published)
	}
}

// SetValue publishes a small value to the cluster. An empty value withdraws it. There are at most 32 values of at most 4096 bytes of UTF-8. A name is
// one line of at most 64 bytes, and endpoints and values together have at most 32 KiB. What does not fit is ignored and logged; a value that was set
// before stays. Others see the newest value within some seconds, but not every value in between.
func (h *Host) SetValue(name, value string) {
	switch {
	case !limits.NameOK(name):
		h.log.Error("ignored a value: its name is not one line of UTF-8 of the right length",
			"value", limits.Cut(name, limits.Name), "bytes", len(name), "allowed", limits.Name)
	case !utf8.ValidString(value):
		h.log.Error("ignored a value: it is not UTF-8", "value", name)
	case len(value) > limits.Value:
		h.log.Error("ignored a value: it is too long", "value", name, "bytes", len(value), "allowed", limits.Value)
	case !h.status.setValue(name, value):
		h.log.Error("ignored a value: there are too many, or endpoints and values together are too large",
			"value", name, "allowed", limits.Values, "allowed_bytes", limits.Published)
	}
}

// WorkloadAPI is the address of the SPIFFE Workload API, "unix:///…". Libraries that support it also find it in SPIFFE_ENDPOINT_SOCKET. It provides
// an X.509-SVID of the instance, with a key that the core makes, and the cluster's CA, but no JWT-SVIDs. Listen and Dial do not need it.
func (h *Host) WorkloadAPI() string { return "unix://" + h.request.GetHostSocket() }

// Client is the raw host protocol, on a connection that finds a restarted core again. Calls wait for a core that is away until their context ends;
// while the role stops they fail at once.
func (h *Host) Client() hostv1.HostServiceClient { return h.client }
