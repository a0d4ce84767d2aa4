package target

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/cli/fault"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// Self is the name by which a command line means the node of its dev directory.
const Self = "self"

// Node is a node that a command line named.
type Node struct {
	ID string
	// Local says that it is the node of the dev directory.
	Local bool
}

// FindNode returns the node with a name: its ID, an unambiguous beginning of it, or Self. The empty name is the node of the dev directory, or
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
			if localID == "" {
				return Node{}, fault.New(fault.Unreachable, "the node in "+t.options.Dir+" has no key yet", "Try again in a moment.")
			}
			return Node{ID: localID, Local: true}, nil
		}
	} else if name == Self {
		return Node{}, fault.New(fault.Usage, "self means the node of a dev directory, and none is named", "Name the node, or give --dir.")
	}
	ids, err := t.nodeIDs(ctx)
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

func (t *Target) nodeIDs(ctx context.Context) ([]string, error) {
	management, err := t.Management(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	response, err := management.ListNodes(ctx, &clusterv1.ListNodesRequest{})
	if err != nil {
		return nil, fault.FromRPC(err, "the nodes cannot be listed", "")
	}
	var ids []string
	for _, node := range response.GetNodes() {
		ids = append(ids, node.GetRecord().GetId())
	}
	return ids, nil
}

// NodeAPI returns a node's own API: over the local socket, or at the address that the node has reported.
func (t *Target) NodeAPI(ctx context.Context, node Node) (nodev1.NodeServiceClient, error) {
	if node.Local {
		return nodev1.NewNodeServiceClient(t.local), nil
	}
	management, err := t.Management(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	response, err := management.GetNode(ctx, &clusterv1.GetNodeRequest{NodeId: node.ID})
	if err != nil {
		return nil, fault.FromRPC(err, "the address of node "+node.ID+" cannot be had", "Run `reeve node list` to see the nodes.")
	}
	address := response.GetNode().GetStatus().GetApiAddress()
	if address == "" {
		return nil, fault.New(fault.Refused, "node "+node.ID+" serves its own API on its local socket only",
			"Run reeve on that machine with --dir, or set network.api_listen in its parameters.")
	}
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(t.trust.node(node.ID))), receiveLimit())
	if err != nil {
		return nil, fault.Wrap(fault.Failed, err, "no connection to node "+node.ID+" can be made", "")
	}
	t.others = append(t.others, conn)
	return nodev1.NewNodeServiceClient(conn), nil
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
		lost(err)
		t.forgetCurators()
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
		pause = min(2*pause, lastRedial)
	}
}

func (t *Target) watchOnce(ctx context.Context, nodeID string, see func(*clusterv1.Node)) error {
	management, err := t.Management(ctx)
	if err != nil {
		return err
	}
	// Ends the stream on every way out.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	what := "node " + nodeID + " cannot be watched"
	stream, err := management.WatchNode(ctx, &clusterv1.WatchNodeRequest{NodeId: nodeID})
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
