package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/reeveproject/reeve/plugins/curator/internal/cache"
	"github.com/reeveproject/reeve/plugins/curator/internal/configuration"
	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	"github.com/reeveproject/reeve/proto/address"
	"github.com/reeveproject/reeve/sdk/event"
)

const (
	// tryFirst is when the configured address is tried again for the first time, as soon as a node would start the role again: the former process may just
	// be ending. The time doubles up to tryEvery.
	tryFirst = 100 * time.Millisecond
	tryEvery = time.Second
	// stillEvery is how often it is looked whether the machine still has the configured address.
	stillEvery = 2 * time.Second
	// addressWithin is how long is waited for the address of the node, which its core knows as a rule, before it is served without anybody being told where.
	addressWithin = 5 * time.Second
)

// loopbacks are where the curator is served as well if its address is one that the machine may lose: the node's core and the operators on this machine reach the curator whatever becomes of that, since
// nobody else may take the configuration that sets it right.
var loopbacks = []string{"127.0.0.1", "::1"}

// entrance is where the cluster API is served: at the configured address, as soon as that can be had, and on loopback. The host and the health are told.
type entrance struct {
	config    Config
	clusterID string
	snapshots *event.Value[*cache.Snapshot]
	condition *condition
	door      door

	mu sync.Mutex
	// listening is where is served, and reason why that is not the configured address; empty: it is.
	listening net.Addr
	reason    string
	told      string
	// lost says that the reason is that the machine does not have the address any more.
	lost bool
	// local is where only this machine reaches the curator; empty: where everybody does.
	local string
}

// open returns the listeners to serve. If the configured one is not among them, then unusable says why, and late is to run.
func (e *entrance) open(ctx context.Context) (listeners []net.Listener, unusable, err error) {
	listener, unusable := listen(ctx, e.config)
	if unusable == nil && e.config.Configuration.Follows() {
		bounded, cancel := context.WithTimeout(ctx, addressWithin)
		_, _ = e.config.Host.Network().Wait(bounded, func(addresses []string) bool { return len(addresses) > 0 })
		cancel()
	}
	if ctx.Err() != nil {
		if unusable == nil {
			_ = listener.Close()
		}
		return nil, nil, ctx.Err()
	}
	if unusable == nil {
		listeners = append(listeners, listener)
	}
	local, err := e.openLocal(ctx, listener)
	if local != nil {
		listeners = append(listeners, local)
	}
	if unusable == nil {
		if err != nil {
			e.config.Log.Warn("the cluster API is not served on loopback", "error", err)
		}
		e.enter(listener, "")
		return listeners, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%w; nor can it be served on loopback: %w", unusable, err)
	}
	e.config.Log.Warn("the cluster API is served on loopback only, until its address can be listened on", "error", unusable)
	e.enter(local, e.instead(unusable))
	return listeners, unusable, nil
}

// openLocal finds where this machine alone reaches the curator, and returns the listener for it: nil if what is configured hears there, too. configured is nil if it cannot be had.
func (e *entrance) openLocal(ctx context.Context, configured net.Listener) (net.Listener, error) {
	if configured != nil && isLoopback(configured.Addr().String()) {
		return nil, nil
	}
	var problems []error
	for _, host := range loopbacks {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			problems = append(problems, err)
			continue
		}
		if configured != nil && e.config.Configuration.Everywhere() {
			_, port, err := net.SplitHostPort(configured.Addr().String())
			e.local = net.JoinHostPort(host, port)
			return nil, errors.Join(err, listener.Close())
		}
		e.local = listener.Addr().String()
		return listener, nil
	}
	return nil, errors.Join(problems...)
}

func isLoopback(address string) bool {
	parsed, err := netip.ParseAddrPort(address)
	return err == nil && parsed.Addr().IsLoopback()
}

// still looks whether the machine has the address on which the curator listens, until ctx is done. Nobody else says that it has not: the listener stays, and accepts again when the
// address is back.
func (e *entrance) still(ctx context.Context) {
	ticker := time.NewTicker(stillEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		e.look(ctx)
	}
}

// look looks once. While the configured address was never had, late does.
func (e *entrance) look(ctx context.Context) {
	e.mu.Lock()
	defer e.mu.Unlock()
	host, _, err := net.SplitHostPort(e.listening.String())
	if err != nil || e.reason != "" && !e.lost {
		return
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	if err == nil {
		_ = listener.Close()
	}
	lost := errors.Is(err, syscall.EADDRNOTAVAIL)
	if lost == e.lost || ctx.Err() != nil {
		return
	}
	e.lost, e.reason = lost, ""
	if lost {
		e.reason = e.instead(e.config.noSuchAddress(e.listening.String()))
		e.config.Log.Warn("this machine has lost the address of the cluster API; it is served on loopback until the address is back", "listen", e.listening.String())
	}
	e.condition.set(ofAddress, e.reason)
}

// late tries the configured address again until it can be listened on, hands the listener to serving, and has others told of it. It ends with ctx.
func (e *entrance) late(ctx context.Context, serving chan<- net.Listener) {
	timer := time.NewTimer(tryFirst)
	defer timer.Stop()
	for wait := tryFirst; ; {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		listener, err := listen(ctx, e.config)
		if ctx.Err() != nil {
			if err == nil {
				_ = listener.Close()
			}
			return
		}
		if err != nil {
			e.condition.set(ofAddress, e.instead(err))
			wait = min(2*wait, tryEvery)
			timer.Reset(wait)
			continue
		}
		select {
		case serving <- listener:
			e.enter(listener, "")
		case <-ctx.Done():
			_ = listener.Close()
		}
		return
	}
}

// enter tells of a listener that is served. reason says why that is not at the configured address; empty: it is.
func (e *entrance) enter(listener net.Listener, reason string) {
	e.config.Health.serving(e.door, e.snapshots)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.listening, e.reason, e.told = listener.Addr(), reason, ""
	e.tell()
}

// follow tells of another address whenever the node has another one, until ctx is done.
func (e *entrance) follow(ctx context.Context) {
	addresses := e.config.Host.Network().Watch()
	for {
		select {
		case <-ctx.Done():
			return
		case <-addresses.Changed():
		}
		_, _ = addresses.Latest() // tell reads the present ones
		e.mu.Lock()
		e.tell()
		e.mu.Unlock()
	}
}

// tell tells others where the cluster API is served, if that is not what they were told, and this node where it alone reaches it. The lock is held.
func (e *entrance) tell() {
	if e.local != "" {
		e.config.Host.SetEndpoint(rules.EndpointLocal, e.local)
	}
	if e.reason != "" {
		e.condition.set(ofAddress, e.reason) // no other machine reaches it
		return
	}
	endpoint := e.config.Configuration.Endpoint(e.listening, e.node())
	if endpoint == "" {
		// The last one that was told is better than none.
		if e.told == "" {
			e.condition.set(ofAddress, "this node knows no address of its own yet, which others could be told: set \"advertise\" in the configuration of role "+e.config.Role)
		}
		return
	}
	if endpoint != e.told {
		e.told = endpoint
		e.config.Log.Info("serving the cluster API", "cluster", e.clusterID, "listen", e.listening.String(), "endpoint", endpoint)
		e.config.Host.SetEndpoint(rules.CapabilityCluster, endpoint)
	}
	e.condition.set(ofAddress, "")
}

// node is the node's addresses, where others are told one of them.
func (e *entrance) node() []string {
	if !e.config.Configuration.Follows() {
		return nil
	}
	addresses, _ := e.config.Host.Network().Get()
	return addresses
}

// instead says what is served instead, and which command sets another address. It is one that a host takes whole, also with long names.
func (e *entrance) instead(unusable error) string {
	return fmt.Sprintf("%v: `reeve node role add %s %s --config …`; until then it is served on loopback only", unusable, e.config.NodeID, e.config.Role)
}

// listen listens on the configured address, and otherwise says what to do.
func listen(ctx context.Context, config Config) (net.Listener, error) {
	listener, err := address.Listen(ctx, config.Configuration.Listen)
	if errors.Is(err, syscall.EADDRNOTAVAIL) && config.Configuration.Listen == configuration.DefaultListen {
		listener, err = address.Listen(ctx, "[::1]:0")
	}
	switch {
	case err == nil:
		return listener, nil
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("the address %s, on which the cluster API is to be served, is in use by another process: end that process, "+
			"or set another \"listen\" in the configuration of role %s (port 0 takes a free one)", config.Configuration.Listen, config.Role)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, config.noSuchAddress(config.Configuration.Listen)
	default:
		return nil, fmt.Errorf("listen on %s for the cluster API: %w: set another \"listen\" in the configuration of role %s", config.Configuration.Listen, err, config.Role)
	}
}

func (c *Config) noSuchAddress(listen string) error {
	return fmt.Errorf("the address %s, on which the cluster API is to be served, is none of this machine: wait until it is, "+
		"or set another \"listen\" in the configuration of role %s", listen, c.Role)
}
