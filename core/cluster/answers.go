package cluster

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/enrol"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// Refused says that the cluster takes this node for another one than the one that it knows, and does not hear it.
type Refused struct {
	// Twin says that two machines have the node's key and the same number of starts; otherwise a later start than this one has called, which this machine does not
	// know of.
	Twin bool
	// Known is the number of the start that the cluster knows.
	Known uint64
	// Reason says what happened and what to do.
	Reason string
}

// learn takes note of what the error of a call says of the node itself.
func (s *session) learn(err error) {
	c, nodeID := s.Client, s.to.nodeID
	answer, ok := status.FromError(err)
	if err == nil || !ok {
		return
	}
	for _, detail := range answer.Details() {
		switch detail := detail.(type) {
		case *clusterv1.NodeRemoved:
			// Only a tombstone that names the node is believed.
			if answer.Code() != codes.PermissionDenied || nodeID == "" || detail.GetNodeId() != nodeID {
				continue
			}
			// A curator that is older than the field is of the store that the node follows, as far as can be known.
			if of := (Generation{Number: detail.GetStoreGeneration(), ID: detail.GetStoreGenerationId()}); detail.StoreGeneration != nil && s.heeds(of, false) != nil {
				continue
			}
			if removed, _ := c.removed.Get(); removed == nil {
				c.config.Log.Warn("the cluster has removed this node", "reason", detail.GetReason())
				c.removed.Set(&enrol.RemovedError{NodeID: nodeID, Reason: detail.GetReason()})
			}
		case *clusterv1.IncarnationRefused:
			if answer.Code() != codes.FailedPrecondition {
				continue
			}
			next := Refused{Twin: detail.GetTwin(), Known: detail.GetKnown(), Reason: c.refusal(detail, nodeID)}
			if refused, _ := c.refused.Get(); refused == nil || *refused != next {
				c.config.Log.Error("the cluster does not hear this node", "reason", next.Reason)
				c.refused.Set(&next)
			}
		}
	}
}

// heard takes note that the cluster hears the node.
func (c *Client) heard() {
	if refused, _ := c.refused.Get(); refused != nil {
		c.refused.Set(nil)
	}
}

// refusal says what an IncarnationRefused means, and what to do.
func (c *Client) refusal(detail *clusterv1.IncarnationRefused, nodeID string) string {
	if detail.GetTwin() {
		return fmt.Sprintf("another machine runs with the key of node %s, started as often as this one: its disk is a copy of this one, or this one of it. "+
			"Switch one of them off for good, and have the cluster take the other: `reeve node accept %s`, as owner", nodeID, nodeID)
	}
	number := uint64(0)
	if incarnation := c.incarnation(); incarnation != nil {
		number = incarnation.GetNumber()
	}
	return fmt.Sprintf("the cluster knows start %d of node %s, and this is start %d: the disk of this machine is an older copy, or another machine runs with its key. "+
		"If this is the right one, and no other runs: `reeve node accept %s`, as owner", detail.GetKnown(), nodeID, number, nodeID)
}

// incarnation is this start of the core; nil: it is not known.
func (c *Client) incarnation() *clusterv1.Incarnation {
	incarnation, _ := c.config.Incarnation.Get()
	return incarnation
}

// signed is the context of a call, with the incarnation in its header.
func (c *Client) signed(ctx context.Context) context.Context {
	if incarnation := c.incarnation(); incarnation != nil {
		ctx = metadata.AppendToOutgoingContext(ctx, clusterv1.IncarnationHeader, incarnation.Header())
	}
	return ctx
}

func (c *Client) signUnary(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	return invoke(c.signed(ctx), method, request, reply, conn, options...)
}

func (c *Client) signStream(ctx context.Context, of *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
	return open(c.signed(ctx), of, conn, method, options...)
}

// IssueRoleSVID has the cluster issue an SVID for an instance of a role of this node, by its certificate request (PKCS #10, DER). It returns the SVID, leaf first,
// and the certificates of the cluster CA, DER. It asks whichever curator is in reach until the context ends. An error that is no gRPC status says why none is.
func (c *Client) IssueRoleSVID(ctx context.Context, role string, request []byte) (svid, ca [][]byte, err error) {
	sessions := c.current.Watch()
	var last error
	for {
		at, _ := sessions.Latest()
		switch {
		case at == nil:
		case at.checkStore() != nil:
			last = at.checkStore() // another curator may be next, or the node follows that store soon
		default:
			call, cancel := context.WithTimeout(ctx, callTimeout)
			response, err := at.api.IssueRoleSVID(call, &clusterv1.IssueRoleSVIDRequest{Role: role, CertificateRequest: request})
			cancel()
			if err == nil {
				if len(response.GetSvid()) == 0 {
					return nil, nil, fmt.Errorf("cluster: %s answered the request for an SVID of role %s with none", at.to.who(), role)
				}
				return response.GetSvid(), response.GetCaCertificates(), nil
			}
			at.learn(err)
			switch status.Code(err) {
			case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Aborted:
				last = err
			default:
				return nil, nil, err
			}
		}
		pause, cancel := context.WithTimeout(ctx, maxPause/4)
		select {
		case <-pause.Done():
		case <-sessions.Changed():
		}
		cancel()
		if ctx.Err() != nil {
			return nil, nil, c.unreachable(role, last)
		}
	}
}

// unreachable is the error of a call that no curator has answered.
func (c *Client) unreachable(role string, last error) error {
	if contact, _ := c.contact.Get(); !contact.OK && contact.Reason != "" {
		return fmt.Errorf("cluster: no SVID for role %s: the cluster is out of reach: %s", role, contact.Reason)
	}
	if last == nil {
		last = errors.New("no curator is in reach at present")
	}
	return fmt.Errorf("cluster: no SVID for role %s: %s", role, explain(last))
}
