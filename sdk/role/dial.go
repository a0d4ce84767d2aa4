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

// Why Dial did not connect, by errors.Is. ErrNoIdentity is another reason.
var (
	// ErrNoInstance says that the cluster's directory has no such instance, or none that serves such an endpoint. Host.Directory tells when that changes.
	ErrNoInstance = errors.New("no such instance in the cluster's directory")
	// ErrNotReachable says that nobody answers where the directory says that the instance serves. It may be about to start, or to end.
	ErrNotReachable = errors.New("the instance cannot be reached")
	// ErrNotAuthorised says that one side did not accept the other: this instance is of a role or a node that the listener does not let in, or the one that
	// answers there is not the one that was asked for.
	ErrNotAuthorised = errors.New("not authorised")
)

// Dial connects to the endpoint of an instance of a role that listens by Host.Listen, with TLS 1.3 by which both sides prove themselves by their SVIDs: what it
// returns is connected to that role on that node, and to nobody else. The connection ends as Listen says. PeerOf tells the peer.
//
// An empty nodeID is any healthy instance of the role, this node's too, and an empty endpoint is the only one that the instance has. Dial waits, as long as
// ctx lets it, until the instance has an SVID and the node knows the cluster's directory; what the directory does not have is ErrNoInstance at once. Other
// errors are ErrNotReachable, ErrNotAuthorised and ErrNoIdentity, by errors.Is.
func (h *Host) Dial(ctx context.Context, role, nodeID, endpoint string) (net.Conn, error) {
	conn, err := h.dial(ctx, role, nodeID, endpoint)
	if err != nil {
		return nil, fmt.Errorf("role: dial %s: %w", target(role, nodeID, endpoint), err)
	}
	return conn, nil
}

// target is what was asked for, for people.
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

// place is where an instance serves.
type place struct {
	peer    Peer
	address string // host:port
}

// find returns where the directory says that what is asked for is served: at one place if a node is named, otherwise at all places, in random order, those
// that are healthy first.
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

// addressOf returns the host:port of an endpoint; of the only one if none is named.
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
		return "", fmt.Errorf("serves several endpoints, of which one has to be named: %s", strings.Join(names, ", "))
	}
	return "", fmt.Errorf("serves no such endpoint, but %s", strings.Join(names, ", "))
}

// hostPort returns the host:port of an endpoint's address, which may be a URL.
func hostPort(address string) (string, error) {
	found := address
	if strings.Contains(address, "://") {
		parsed, err := url.Parse(address)
		if err != nil {
			return "", fmt.Errorf("has an address that cannot be read: %w", err)
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
		// SVIDs name no hosts: VerifyConnection verifies the chain, and that the SVID is of the role and the node that were asked for.
		InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			if refused = verify(state); refused == nil && conn.peer != to.peer {
				refused = fmt.Errorf("it is %s that answers there", conn.peer)
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
	_ = raw.Close() // err is what matters
	var remote *net.OpError
	switch {
	case errors.Is(err, ErrNotAuthorised):
		return nil, err
	case refused != nil:
		return nil, fmt.Errorf("%w: %w", ErrNotAuthorised, refused)
	case errors.As(err, &remote) && remote.Op == "remote error":
		return nil, fmt.Errorf("%w: the listener does not accept the SVID of this instance: %w", ErrNotAuthorised, err)
	}
	return nil, fmt.Errorf("%w: %w", ErrNotReachable, err)
}
