package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/reeveproject/reeve/plugins/curator/internal/cache"
	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	"github.com/reeveproject/reeve/sdk/event"
)

const (
	// insteadListen is served where the configured address cannot be: the node's core and the operators on this machine must reach the last curator of a
	// cluster, since nobody else takes the configuration that sets it right.
	insteadListen = "127.0.0.1:0"
	// tryFirst is when the configured address is tried again for the first time, as soon as a node would start the role again: the former process may just
	// be ending. The time doubles up to tryEvery.
	tryFirst = 100 * time.Millisecond
	tryEvery = time.Second
	// addressWithin is how long is waited for the address of the node, which its core knows as a rule, before it is served without anybody being told where.
	addressWithin = 5 * time.Second
)

// entrance is where the cluster API is served: at the configured address, or, until that can be had, on loopback. The host and the health are told.
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
}

// open returns the listener to serve. If it is not the configured one, then unusable says why, and late is to run.
func (e *entrance) open(ctx context.Context) (listener net.Listener, unusable, err error) {
	listener, unusable = listen(ctx, e.config)
	if unusable == nil && e.config.Configuration.Follows() {
		bounded, cancel := context.WithTimeout(ctx, addressWithin)
		_, _ = e.config.Host.Network().Wait(bounded, func(addresses []string) bool { return len(addresses) > 0 })
		cancel()
	}
	if unusable == nil {
		e.enter(listener, "")
		return listener, nil, nil
	}
	if ctx.Err() != nil {
		return nil, nil, ctx.Err()
	}
	listener, err = net.Listen("tcp", insteadListen)
	if err != nil {
		return nil, nil, fmt.Errorf("%w; nor can it be served on loopback: %w", unusable, err)
	}
	e.config.Log.Warn("the cluster API is served on loopback only, until its address can be listened on", "error", unusable)
	e.enter(listener, e.instead(unusable))
	return listener, unusable, nil
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

// tell tells others where the cluster API is served, if that is not what they were told. The lock is held.
func (e *entrance) tell() {
	endpoint, reason := e.listening.String(), e.reason
	if reason == "" {
		endpoint = e.config.Configuration.Endpoint(e.listening, e.node())
	}
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
	e.condition.set(ofAddress, reason)
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
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", config.Configuration.Listen)
	switch {
	case err == nil:
		return listener, nil
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("the address %s, on which the cluster API is to be served, is in use by another process: end that process, "+
			"or set another \"listen\" in the configuration of role %s (port 0 takes a free one)", config.Configuration.Listen, config.Role)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("the address %s, on which the cluster API is to be served, is none of this machine: wait until it is, "+
			"or set another \"listen\" in the configuration of role %s", config.Configuration.Listen, config.Role)
	default:
		return nil, fmt.Errorf("listen on %s for the cluster API: %w: set another \"listen\" in the configuration of role %s", config.Configuration.Listen, err, config.Role)
	}
}
