package enrol

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// RemovedError says that the node was removed from the cluster: a verified curator sent the tombstone that names it.
type RemovedError struct {
	NodeID string
	// Reason says what was done, by whom and when.
	Reason string
}

func (e *RemovedError) Error() string {
	return fmt.Sprintf("enrol: node %s was removed from the cluster (%s) and never becomes a member again: set up a new node with an empty system directory", e.NodeID, e.Reason)
}

// PinError says that every known curator answered, but none with a pinned CA: the addresses or the ticket belong to another cluster.
type PinError struct {
	ClusterID string
	// NodeID is the node's, and Call the name of the RPC.
	NodeID, Call string
	// Since is when the CA was made that a curator showed; zero: none showed one of the cluster.
	Since time.Time
	// Pinned are the SHA-256 hashes of the public keys of the trusted CAs.
	Pinned [][]byte

	shown []shown
}

// shown are the hashes of the CA public keys that a curator showed.
type shown struct {
	address string
	pins    [][]byte
}

func (e *PinError) Error() string {
	var found []string
	for _, s := range e.shown {
		if len(s.pins) == 0 {
			found = append(found, s.address+" shows none")
		} else {
			found = append(found, fmt.Sprintf("%s shows %x", s.address, s.pins))
		}
	}
	if e.Since.IsZero() {
		return fmt.Sprintf("enrol: no curator shows a CA of cluster %s: the SHA-256 of its public key must be one of %x; %s. "+
			"Somebody else answers there, or the ticket is of another cluster: make one in this cluster (`reeve ticket create`)", e.ClusterID, e.Pinned, strings.Join(found, ", "))
	}
	known := "the ticket of this machine is older"
	back := "make a new ticket (`reeve ticket create --output-file ticket`), put it in the place of the old one (register.ticket_file of the parameters, /etc/reeve/ticket by default), and restart reeved"
	if e.Call == "Join" {
		known = "this node knows an older one only"
		back = "delete the node (`reeve node delete " + e.NodeID + "`), make a new ticket (`reeve ticket create --output-file ticket`), and on this machine stop reeved, remove its system and data directories " +
			"and its file of parameters, run `reeve init --again --join ticket`, and start it"
	}
	return fmt.Sprintf("enrol: the cluster has a new CA since %s, by what its curators show, and %s. If the owner replaced the CA then, %s. "+
		"If nobody did, somebody else answers there: the SHA-256 of the CA's public key must be one of %x; %s",
		e.Since.UTC().Format(time.RFC3339), known, back, e.Pinned, strings.Join(found, ", "))
}

// RefusedError says that the cluster refused a call because of its content. Repeating it does not help.
type RefusedError struct {
	// Call is the name of the RPC, Curator the host:port that refused it.
	Call, Curator string
	Code          codes.Code
	// Message is the curator's reason.
	Message string
	// Incarnation is set if the cluster takes the node for a copy or an older state of itself.
	Incarnation *clusterv1.IncarnationRefused
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("enrol: %s: the curator at %s refused it (%s): %s", e.Call, e.Curator, e.Code, e.Message)
}

// final reports whether an error is the cluster's answer, which is the same at every curator.
func final(err error) bool {
	var removed *RemovedError
	var refused *RefusedError
	return errors.As(err, &removed) || errors.As(err, &refused)
}

// typedError turns an error of a call into a typed error.
func (c *Client) typedError(call, address string, err error) error {
	answer, ok := status.FromError(err)
	if !ok {
		return err
	}
	refused := &RefusedError{Call: call, Curator: address, Code: answer.Code(), Message: answer.Message()}
	for _, detail := range answer.Details() {
		switch detail := detail.(type) {
		case *clusterv1.NodeRemoved:
			if answer.Code() == codes.PermissionDenied && c.config.NodeID != "" && detail.GetNodeId() == c.config.NodeID {
				return &RemovedError{NodeID: c.config.NodeID, Reason: detail.GetReason()}
			}
		case *clusterv1.IncarnationRefused:
			refused.Incarnation = detail
		}
	}
	switch answer.Code() {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied, codes.Unauthenticated, codes.FailedPrecondition, codes.OutOfRange,
		codes.Unimplemented:
		return refused
	}
	return fmt.Errorf("%s: %s", answer.Code(), answer.Message())
}
