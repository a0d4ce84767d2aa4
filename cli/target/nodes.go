package target

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/cli/fault"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// Self is the name by which a command line means the local node: that of its dev directory, its socket or its context.
const Self = "self"

// Node is a node that a command line named.
type Node struct {
	ID string
	// Local says that it is the local node.
	Local bool
}

// FindNode returns the node with a name: its ID, an unambiguous beginning of it, or Self. The empty name is the local node, or
// the only one of the cluster. The local node is found by Self, or while the cluster does not answer, without the cluster.
func (t *Target) FindNode(ctx context.Context, name string) (Node, error) {
	localID := ""
	if t.local != nil {
		status, err := t.LocalStatus(ctx)
		if err != nil {
			return Node{}, err
		}
		localID = status.GetNodeId()
		if name == Self || name == "" || name == localID {
			// One that is locked may not know its ID, and can be asked for what opens it.
			if localID == "" && !locked(status) {
				return Node{}, fault.New(fault.Unreachable, t.way.node()+" has no key yet", "Try again in a moment.")
			}
			return Node{ID: localID, Local: true}, nil
		}
	} else if name == Self {
		return Node{}, fault.New(fault.Usage, "self means the node of a dev directory or of a local socket, and none is named",
			"Name the node, or give --dir or --socket.")
	}
	ids, err := t.nodeIDs(ctx, name)
	if err != nil {
		if fault.CodeOf(err) == fault.Unreachable && strings.HasPrefix(localID, name) && localID != "" {
			return Node{ID: localID, Local: true}, nil
		}
		return Node{}, err
	}
	var found []string
	for _, id := range ids {
		if id == name {
			return Node{ID: id, Local: id == localID}, nil
		}
		if strings.HasPrefix(id, name) {
			found = append(found, id)
		}
	}
	switch {
	case len(found) == 1:
		return Node{ID: found[0], Local: found[0] == localID}, nil
	case len(found) == 0:
		return Node{}, fault.New(fault.NotFound, fmt.Sprintf("no node is called %q", name), "Run `reeve node list` to see the nodes.")
	case name == "":
		return Node{}, fault.New(fault.Usage, fmt.Sprintf("the cluster has %d nodes and none is named", len(found)),
			"Name one; `reeve node list` shows them.")
	default:
		return Node{}, fault.New(fault.Usage, fmt.Sprintf("%q is the beginning of %d nodes", name, len(found)),
			"Give more of the ID; `reeve node list` shows them.")
	}
}

// locked says whether a node waits for its volume.
func locked(status *nodev1.Status) bool {
	switch status.GetStorage().GetState() {
	case clusterv1.StorageState_STORAGE_STATE_LOCKED, clusterv1.StorageState_STORAGE_STATE_SEALED:
		return true
	default:
		return false
	}
}

// nodeIDs are the IDs of the nodes that a name may mean.
func (t *Target) nodeIDs(ctx context.Context, name string) ([]string, error) {
	nodes, err := t.ListNodes(ctx)
	if fault.CodeOf(err) == fault.Unreachable && t.known != nil && len(t.known.nodeIDs()) > 0 {
		// Nodes can be asked while the cluster is away.
		return t.known.nodeIDs(), nil
	}
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, node := range nodes {
		// Who names none does not mean one that was removed.
		if name != "" || node.GetRecord().GetState() != clusterv1.NodeState_NODE_STATE_DECOMMISSIONED {
			ids = append(ids, node.GetRecord().GetId())
		}
	}
	return ids, nil
}

// ListNodes returns all nodes, page by page.
func (t *Target) ListNodes(ctx context.Context) ([]*clusterv1.Node, error) {
	var all []*clusterv1.Node
	for after, more := "", true; more; {
		page, err := t.API().ListNodes(ctx, &clusterv1.ListNodesRequest{Limit: nodesPerPage, After: after})
		if err != nil {
			return nil, fault.FromRPC(err, "cannot list the nodes", "")
		}
		all = append(all, page.GetNodes()...)
		if more = page.GetMore() && len(page.GetNodes()) > 0; more {
			after = all[len(all)-1].GetRecord().GetId()
		}
	}
	return all, nil
}

// ListCertificates returns all certificates, page by page, sorted by their end.
func (t *Target) ListCertificates(ctx context.Context) (*clusterv1.ListCertificatesResponse, error) {
	all := new(clusterv1.ListCertificatesResponse)
	for more := true; more; more = all.GetNext() != "" {
		page, err := t.API().ListCertificates(ctx, &clusterv1.ListCertificatesRequest{Limit: certificatesPerPage, After: all.GetNext()})
		if err != nil {
			return nil, fault.FromRPC(err, "cannot list the certificates", "")
		}
		page.Certificates = append(all.GetCertificates(), page.GetCertificates()...)
		all = page
	}
	slices.SortStableFunc(all.Certificates, func(a, b *clusterv1.Certificate) int {
		return cmp.Or(a.GetNotAfter().AsTime().Compare(b.GetNotAfter().AsTime()), cmp.Compare(a.GetSubject(), b.GetSubject()))
	})
	return all, nil
}

// nodesPerPage and certificatesPerPage are how many are asked for at once. A curator that knows no pages answers with all.
const (
	nodesPerPage        = 1000
	certificatesPerPage = 1000
)

// NodeAPI returns a node's own API: over the local socket, or at the address that the node has reported.
func (t *Target) NodeAPI(ctx context.Context, node Node) (nodev1.NodeServiceClient, error) {
	if node.Local {
		return nodev1.NewNodeServiceClient(t.local), nil
	}
	address, err := t.nodeAddress(ctx, node.ID)
	if fault.CodeOf(err) == fault.Unreachable && t.known != nil && t.known.node(node.ID) != "" {
		address, err = t.known.node(node.ID), nil
	}
	if err != nil {
		return nil, err
	}
	conn, err := t.dialNode(address, node.ID)
	if err != nil {
		return nil, fault.Wrap(fault.Failed, err, "no connection to node "+node.ID+" can be made", "")
	}
	t.others = append(t.others, conn)
	return nodev1.NewNodeServiceClient(conn), nil
}

// ErrSilent says, by errors.Is, that a node has never told the cluster how it is: it may do so any moment.
var ErrSilent = errors.New("the node has not told the cluster yet how it is")

// nodeAddress asks the cluster where a node serves its own API.
func (t *Target) nodeAddress(ctx context.Context, id string) (string, error) {
	response, err := t.API().GetNode(ctx, &clusterv1.GetNodeRequest{NodeId: id})
	if err != nil {
		return "", fault.FromRPC(err, "cannot read the address of node "+id, "Run `reeve node list` to see the nodes.")
	}
	if response.GetNode().GetStatus() == nil {
		return "", fault.Wrap(fault.Unreachable, ErrSilent, "node "+id+" has not said yet where it serves its own API",
			"Wait until `reeve node list` shows it as healthy; one that was just approved needs a moment.")
	}
	address := response.GetNode().GetStatus().GetApiAddress()
	if address == "" {
		return "", fault.New(fault.Refused, "node "+id+" serves its own API on its local socket only",
			"Run reeve on that machine with --dir or --socket, or set network.api_listen in its parameters.")
	}
	return address, nil
}

// dialNode returns a connection to the own API of a node. It is made when it is needed.
func (t *Target) dialNode(address, id string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(credentials.NewTLS(t.trust.node(id))),
		// Of a machine that is switched off nothing comes back: what else is asked for does not wait for it.
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: probeTimeout}),
		grpc.WithChainUnaryInterceptor(adviseUnary(t.nodeAdvice)),
		grpc.WithChainStreamInterceptor(adviseStream(t.nodeAdvice), t.untilRenewal),
		receiveLimit(), direct())
}

// nodeAdvice is what to do about what a node answers. Of one that is away the context of the cluster says nothing.
func (t *Target) nodeAdvice(code codes.Code) string {
	if code == codes.Unavailable || code == codes.DeadlineExceeded {
		return ""
	}
	return t.advice()(code)
}

// How long WatchNode waits before it looks for the curators again: at first about as long as a curator needs to start, and never so long
// that somebody who waits at a terminal would notice.
const (
	firstRedial = 50 * time.Millisecond
	lastRedial  = time.Second
)

// WatchNode calls see with the state of a node, as the cluster has it, and again after every change, until ctx ends or the cluster refuses. It
// survives the restart of a curator: lost is called with the reason whenever the stream breaks, and then it is begun anew.
func (t *Target) WatchNode(ctx context.Context, nodeID string, see func(*clusterv1.Node), lost func(error)) error {
	pause := firstRedial
	for {
		err := t.watchOnce(ctx, nodeID, func(node *clusterv1.Node) {
			pause = firstRedial
			see(node)
		})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if fault.CodeOf(err) != fault.Unreachable {
			return err
		}
		t.forgetCurators()
		if errors.Is(err, ErrRenewal) {
			continue
		}
		lost(err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
		pause = min(2*pause, lastRedial)
	}
}

func (t *Target) watchOnce(ctx context.Context, nodeID string, see func(*clusterv1.Node)) error {
	// Ends the stream on every way out.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	what := "cannot watch node " + nodeID
	stream, err := t.API().WatchNode(ctx, &clusterv1.WatchNodeRequest{NodeId: nodeID})
	if err != nil {
		return fault.FromRPC(err, what, "Run `reeve node list` to see the nodes.")
	}
	for {
		response, err := stream.Recv()
		if err != nil {
			// A stream without end that ends, or is cancelled by the other side: the curator stops.
			if code := status.Code(err); ctx.Err() == nil && (code == codes.Unknown || code == codes.Canceled) {
				return fault.Wrap(fault.Unreachable, err, what, "Run `reeve status` to see how the node is.")
			}
			return fault.FromRPC(err, what, "Run `reeve node list` to see the nodes.")
		}
		see(response.GetNode())
	}
}
