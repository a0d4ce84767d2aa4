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

// maxReconnect is the longest wait between two attempts to find the core again. A core that was started again serves the socket within some 100 ms, and
// looking for a Unix socket costs next to nothing.
const maxReconnect = 200 * time.Millisecond

// Host is what the node offers to a running role, and through which the role tells how it is. It can be used by any number of goroutines, until
// Run has returned.
type Host struct {
	request *rolev1.StartRequest
	log     hclog.Logger
	status  *statusValue
	conn    *grpc.ClientConn
	client  hostv1.HostServiceClient

	// ctx lives as long as the instance, which is longer than Run's context: what Run does when it is asked to stop still reaches the host.
	ctx       context.Context
	cancel    context.CancelFunc
	mu        sync.Mutex
	closed    bool
	stopped   atomic.Int32 // a StopReason
	following sync.WaitGroup

	membership event.Value[*hostv1.Membership]
	directory  event.Value[*hostv1.Directory]
	network    event.Value[[]string]
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
				return fmt.Errorf("host socket %s: listened to by user %d, not by the core's user %d", socket, peer.UID, core)
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

// patience lets a call wait for a core that is away, but not while the role stops: a core that comes back does not serve an instance that is
// about to end, and the time that the role has is short.
func patience(stopping <-chan struct{}, options []grpc.CallOption) []grpc.CallOption {
	select {
	case <-stopping:
		return append(slices.Clip(options), grpc.WaitForReady(false))
	default:
		return options
	}
}

// close ends what the host does for the role and waits for it.
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

// background runs a function beside the role, which is to end with h.ctx. It reports whether the host is still there to do so.
func (h *Host) background(function func()) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.following.Go(function)
	return true
}

// InstanceID is "<node ID>/<role>/<counter>". It is another one after every start.
func (h *Host) InstanceID() string { return h.request.GetInstanceId() }

// NodeID is the ID of the node on which the role runs.
func (h *Host) NodeID() string { return h.request.GetNodeId() }

// Role is the name of the role that runs.
func (h *Host) Role() string { return h.request.GetRole() }

// DataDirectory is a directory that only this role of this node can enter, kept over restarts.
func (h *Host) DataDirectory() string { return h.request.GetDataDirectory() }

// RuntimeDirectory is a directory that only this instance can enter, in memory and gone with it: the place for sockets.
func (h *Host) RuntimeDirectory() string { return h.request.GetRuntimeDirectory() }

// Configuration is the role's configuration as a JSON document, or nothing if none was set. It does not change while the instance lives.
// Decode decodes it.
func (h *Host) Configuration() []byte { return []byte(h.request.GetConfiguration()) }

// Grants is the powers of the host that the role is granted, for the role to know; the core checks every call against them. They do not change
// while the instance lives.
func (h *Host) Grants() []Grant { return grantsOf(h.request) }

func grantsOf(request *rolev1.StartRequest) []Grant {
	grants := make([]Grant, 0, len(request.GetGrants()))
	for _, grant := range request.GetGrants() {
		grants = append(grants, Grant{Name: grant.GetName(), Parameters: maps.Clone(grant.GetParameters())})
	}
	return grants
}

// Logger writes JSON lines to standard error, which the core keeps and shows with role and instance as fields.
func (h *Host) Logger() hclog.Logger { return h.log }

// Ready says that the role does its work. It may be called again, after Degraded or Blocked.
func (h *Host) Ready() { h.status.enter(rolev1.RoleState_ROLE_STATE_READY, "") }

// Degraded says that the role runs but cannot do its work as it should, and why.
func (h *Host) Degraded(reason string) {
	h.status.enter(rolev1.RoleState_ROLE_STATE_DEGRADED, reason)
}

// Blocked says that the role can do nothing until something outside it changes: the machine lacks a program, a device or a kernel module. The reason names everything that is
// missing. The process is not restarted: the role itself checks again every few seconds and then calls Ready, Degraded or Blocked. Return an error from Run if a new process
// would help, and call Degraded if part of the work is done. An older core shows Starting.
func (h *Host) Blocked(reason string) {
	state := rolev1.RoleState_ROLE_STATE_BLOCKED
	if !slices.Contains(h.request.GetLaterStates(), state) {
		state = rolev1.RoleState_ROLE_STATE_STARTING
	}
	h.status.enter(state, reason)
}

// SetEndpoint shows to the cluster that the instance serves something, named by a capability or a name of the role's own such as "http", at
// an address (a URL or host:port). An empty address withdraws it. There is room for 32 endpoints; a name is one line of at most 64 bytes, an address
// one of at most 512, and endpoints and values have 32 KiB together. What does not fit is left out, and the log says so;
// an address that was set before stays.
func (h *Host) SetEndpoint(name, address string) {
	switch {
	case !limits.NameOK(name):
		h.log.Error("an endpoint's name is not one line of UTF-8 of the right length; it was left out",
			"endpoint", limits.Cut(name, limits.Name), "bytes", len(name), "allowed", limits.Name)
	case len(address) > limits.Address || !limits.Line(address):
		h.log.Error("an endpoint's address is not one line of UTF-8, or too long; it was left out",
			"endpoint", name, "bytes", len(address), "allowed", limits.Address)
	case !h.status.setEndpoint(name, address):
		h.log.Error("there are too many endpoints, or endpoints and values have too many bytes together; one was left out",
			"endpoint", name, "allowed", limits.Endpoints, "allowed_bytes", limits.Published)
	}
}

// SetValue shows a small value to the cluster. An empty one withdraws it. There is room for 32 values of at most 4096 bytes of UTF-8, whose names are
// one line of at most 64 bytes, 32 KiB together with the endpoints. What does not fit is left out, and the log says so; a value that was set before stays. Others see the newest value within
// some seconds, not each of them.
func (h *Host) SetValue(name, value string) {
	switch {
	case !limits.NameOK(name):
		h.log.Error("a published value's name is not one line of UTF-8 of the right length; it was left out",
			"value", limits.Cut(name, limits.Name), "bytes", len(name), "allowed", limits.Name)
	case !utf8.ValidString(value):
		h.log.Error("a published value is not UTF-8 and was left out", "value", name)
	case len(value) > limits.Value:
		h.log.Error("a published value is too long and was left out", "value", name, "bytes", len(value), "allowed", limits.Value)
	case !h.status.setValue(name, value):
		h.log.Error("there are too many published values, or endpoints and values have too many bytes together; one was left out",
			"value", name, "allowed", limits.Values, "allowed_bytes", limits.Published)
	}
}

// WorkloadAPI is the address of the SPIFFE Workload API, "unix:///…", for libraries that know it, which find it by SPIFFE_ENDPOINT_SOCKET in the environment too: it gives them an X.509-SVID of the
// instance, with a key that the core makes, and the cluster's CA. JWT-SVIDs are not to be had. Listen and Dial do not need it.
func (h *Host) WorkloadAPI() string { return "unix://" + h.request.GetHostSocket() }

// Client is the raw protocol of the host, on a connection that finds a restarted core again. Calls wait for a core that is away as long as
// their context lets them; while the role stops they fail at once.
func (h *Host) Client() hostv1.HostServiceClient { return h.client }
