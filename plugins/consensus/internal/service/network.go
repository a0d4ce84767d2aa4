package service

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"google.golang.org/grpc/credentials"

	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/sdk/event"
)

// Network is how the role reaches the same role of the other nodes. Both sides of a connection have proved by their SVIDs who they are.
type Network interface {
	// Listen serves the others; they find it in the cluster's directory.
	Listen(ctx context.Context) (net.Listener, error)
	// Dial connects to the role on a node.
	Dial(ctx context.Context, node string) (net.Conn, error)
	// Credentials are for gRPC on such connections.
	Credentials() credentials.TransportCredentials
	// Caller is the node whose role makes a call; false: it is not this role's.
	Caller(ctx context.Context) (node string, ok bool)
	// Nodes are those, other than this one, of which the directory says that the role serves there. Callers may change it.
	Nodes() []string
	// Follows is the generation of the store that this node follows; false: it is not known.
	Follows() (store.Generation, bool)
	// Addresses are this node's, the preferred one first.
	Addresses() *event.Value[[]string]
	// Peers are the machines, by address or DNS name, on which other nodes may be: as the operator says, or where curators are or were. Callers may not change it.
	Peers() []string
}

// DefaultPeerPort is where a member listens for the others if nothing else is configured.
const DefaultPeerPort = "7445"

// CheckPeerListen says what is wrong with the address at which a member is to listen.
func CheckPeerListen(address string) error {
	if address == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%q is not host:port", address)
	}
	if number, err := strconv.ParseUint(port, 10, 16); err != nil || number == 0 {
		return fmt.Errorf("%q has no port from 1 to 65535", address)
	}
	if unspecified(host) {
		return nil
	}
	return peers.CheckAddress(address)
}

// unspecified reports whether a host means every address of the machine, and so tells the others nothing.
func unspecified(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

// listenHost is on which of the machine's addresses the member listens, if the others are told the node's first one. Those that it had before are among them: others know the member by
// one of these until a majority has agreed on another. One that only this machine reaches is listened on alone, since another node may have the port on another one.
func listenHost(configured, first string) string {
	if ip := net.ParseIP(first); configured == "" && ip != nil && ip.IsLoopback() {
		return first
	}
	return configured
}

// follows is the generation of the store that the node follows; nil: it never is known.
func follows(config Config) func() (store.Generation, bool) {
	if config.Network == nil {
		return nil
	}
	return config.Network.Follows
}

// place is where the member listens for the others: as configured, and on all addresses where nothing is.
type place struct {
	config Config
	at     event.Value[store.Place]
}

func newPlace(config Config) *place { return &place{config: config} }

// value is nil if the role has no network.
func (p *place) value() *event.Value[store.Place] {
	if p.config.Network == nil {
		return nil
	}
	return &p.at
}

// peers are where other members are looked for that do not answer at the address that is known of them.
func (p *place) peers() []string {
	if p.config.Network == nil {
		return nil
	}
	return p.config.Network.Peers()
}

// run follows the node's address until ctx is done.
func (p *place) run(ctx context.Context) error {
	if p.config.Network == nil {
		return nil
	}
	host, port := "", DefaultPeerPort
	if p.config.PeerListen != "" {
		var err error
		if host, port, err = net.SplitHostPort(p.config.PeerListen); err != nil {
			return err
		}
	}
	if !unspecified(host) {
		p.at.Set(store.Place{Listen: net.JoinHostPort(host, port), Host: host})
		return nil
	}
	addresses := p.config.Network.Addresses().Watch()
	for {
		current, err := addresses.Next(ctx)
		if err != nil {
			return nil
		}
		if len(current) == 0 {
			continue // the last known one is better than none
		}
		next := store.Place{Listen: net.JoinHostPort(listenHost(host, current[0]), port), Host: current[0]}
		if before, ok := p.at.Get(); !ok || before != next {
			p.at.Set(next)
		}
	}
}
