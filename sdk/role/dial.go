package role

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"strings"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// The reasons why Dial failed, by errors.Is. ErrNoIdentity is another one.
var (
	// ErrNoInstance says that the cluster's directory has no such instance, or none with such an endpoint. Watch Host.Directory for changes.
	ErrNoInstance = errors.New("no such instance in the cluster's directory")
	// ErrNotReachable says that nobody answers at the address in the directory. The instance may be starting or ending.
	ErrNotReachable = errors.New("the instance cannot be reached")
	// ErrNotAuthorised says that one side refused the other: the listener does not admit this instance's role or node, or another instance than the
	// requested one answers.
	ErrNotAuthorised = errors.New("not authorised")
)

// Dial connects to an endpoint of an instance that listens with Host.Listen. Both sides authenticate by their SVIDs in TLS 1.3, so the connection is
// to that role on that node and to nobody else. It ends as Listen says. PeerOf returns the peer.
//
// An empty nodeID means any healthy instance of the role, also on this node. An empty endpoint means the instance's only one. Dial waits until ctx
// ends for this instance's SVID and for the cluster's directory. If the directory has no such instance, it fails at once with ErrNoInstance. Other
// errors are ErrNotReachable, ErrNotAuthorised and ErrNoIdentity, by errors.Is.
func (h *Host) Dial(ctx context.Context, role, nodeID, endpoint string) (net.Conn, error) {
	conn, err := h.dial(ctx, role, nodeID, endpoint)
	if err != nil {
		return nil, fmt.Errorf("role: dial %s: %w", target(role, nodeID, endpoint), err)
	}
	return conn, nil
}

// target describes what Dial was asked for.
func target(role, nodeID, endpoint string) string {
	text := role
	if nodeID != "" {
		text += " on " + nodeID
	}
	if endpoint != "" {
		text += ", endpoint " + endpoint
	}
	return text
}

func (h *Host) dial(ctx context.Context, role, nodeID, endpoint string) (*peerConn, error) {
	h.connections.begin(h)
	directory, err := h.Directory().Wait(ctx, func(*hostv1.Directory) bool { return true })
	if err != nil {
		return nil, fmt.Errorf("%w: the node does not know the cluster's directory yet: %w", ErrNoInstance, err)
	}
	places, err := find(directory, role, nodeID, endpoint)
	if err != nil {
		return nil, err
	}
	certificate, trust, err := h.prover.present(ctx)
	if err != nil {
		return nil, err
	}
	var failures []error
	for _, place := range places {
		conn, err := h.connect(ctx, place, certificate, trust)
		if err == nil {
			return conn, nil
		}
		failures = append(failures, fmt.Errorf("%s at %s: %w", place.peer, place.address, err))
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(failures...)
}

// place is an address of an instance.
type place struct {
	peer    Peer
	address string // host:port
}

// find returns the places of an endpoint in the directory: one if a node is named, otherwise all, healthy ones first, in random order.
func find(directory *hostv1.Directory, role, nodeID, endpoint string) ([]place, error) {
	var well, ill []place
	var why []error
	for _, node := range directory.GetNodes() {
		if nodeID != "" && node.GetNodeId() != nodeID {
			continue
		}
		for _, candidate := range node.GetRoles() {
			if candidate.GetRole() != role {
				continue
			}
			address, err := addressOf(candidate, endpoint)
			found := place{peer: Peer{NodeID: node.GetNodeId(), Role: role}, address: address}
			switch {
			case err != nil:
				why = append(why, fmt.Errorf("%s %w", found.peer, err))
			case node.GetHealthy() && working(candidate.GetState()):
				well = append(well, found)
			default:
				ill = append(ill, found)
			}
		}
	}
	shuffle(well)
	shuffle(ill)
	switch all := append(well, ill...); {
	case len(all) > 0:
		return all, nil
	case len(why) > 0:
		return nil, fmt.Errorf("%w: %w", ErrNoInstance, errors.Join(why...))
	case nodeID != "" && nodeOf(directory, nodeID) == nil:
		return nil, fmt.Errorf("%w: it has no such node", ErrNoInstance)
	}
	return nil, fmt.Errorf("%w: no node runs the role", ErrNoInstance)
}

func working(state hostv1.InstanceState) bool {
	return state == hostv1.InstanceState_INSTANCE_STATE_READY || state == hostv1.InstanceState_INSTANCE_STATE_DEGRADED
}

func shuffle(places []place) {
	rand.Shuffle(len(places), func(i, j int) { places[i], places[j] = places[j], places[i] })
}

// addressOf returns the host:port of the named endpoint, or of the only one.
func addressOf(role *hostv1.DirectoryRole, endpoint string) (string, error) {
	endpoints := role.GetEndpoints()
	var names []string
	for _, candidate := range endpoints {
		if candidate.GetName() == endpoint || endpoint == "" && len(endpoints) == 1 {
			return hostPort(candidate.GetAddress())
		}
		names = append(names, candidate.GetName())
	}
	switch slices.Sort(names); {
	case len(names) == 0:
		return "", errors.New("serves nothing yet")
	case endpoint == "":
		return "", fmt.Errorf("serves several endpoints; name one of %s", strings.Join(names, ", "))
	}
	return "", fmt.Errorf("does not serve that endpoint, only %s", strings.Join(names, ", "))
}

// hostPort returns the host:port of an endpoint's address, which may be a URL.
func hostPort(address string) (string, error) {
	found := address
	if strings.Contains(address, "://") {
		parsed, err := url.Parse(address)
		if err != nil {
			return "", fmt.Errorf("has an invalid address: %w", err)
		}
		found = parsed.Host
	}
	host, port, err := net.SplitHostPort(found)
	if err != nil || host == "" || port == "" {
		return "", fmt.Errorf("has the address %q, which has no host and port", address)
	}
	return net.JoinHostPort(host, port), nil
}

// connect connects to one instance.
func (h *Host) connect(ctx context.Context, to place, certificate *tls.Certificate, trust *trust) (*peerConn, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	defer context.AfterFunc(h.ctx, cancel)()
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", to.address)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotReachable, err)
	}
	conn := &peerConn{usage: x509.ExtKeyUsageServerAuth}
	verify := conn.verify(trust, certificate.Leaf)
	refused := error(nil)
	conn.Conn = tls.Client(raw, &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*certificate}, NextProtos: []string{answered},
		// SVIDs name no hosts, so VerifyConnection verifies the chain and compares the SVID with the requested role and node.
		InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			if refused = verify(state); refused == nil && conn.peer != to.peer {
				refused = fmt.Errorf("%s answers there", conn.peer)
			}
			return refused
		},
	})
	err = conn.HandshakeContext(ctx)
	if err == nil && conn.ConnectionState().NegotiatedProtocol == answered {
		err = readAnswer(ctx, conn.Conn)
	}
	if err == nil {
		if err = h.connections.hold(conn); err == nil {
			return conn, nil
		}
		refused = err
	}
	_ = raw.Close() // err matters more
	var remote *net.OpError
	switch {
	case errors.Is(err, ErrNotAuthorised):
		return nil, err
	case refused != nil:
		return nil, fmt.Errorf("%w: %w", ErrNotAuthorised, refused)
	case errors.As(err, &remote) && remote.Op == "remote error":
		return nil, fmt.Errorf("%w: the listener refused the SVID of this instance: %w", ErrNotAuthorised, err)
	}
	return nil, fmt.Errorf("%w: %w", ErrNotReachable, err)
}
