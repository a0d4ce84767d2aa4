package enrol

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// RemovedError says that the node was removed from the cluster: a curator that was verified has shown the tombstone that names it.
type RemovedError struct {
	NodeID string
	// Reason is what was done, by whom and when, as the cluster says.
	Reason string
}

func (e *RemovedError) Error() string {
	return fmt.Sprintf("enrol: node %s was removed from the cluster (%s) and never becomes a member again: start anew with an empty system directory", e.NodeID, e.Reason)
}

// PinError says that every curator whose address is known answered, and none with a CA that is pinned: the addresses, or the ticket, are of another cluster.
type PinError struct {
	ClusterID string
	// Pinned are the SHA-256 hashes of the public keys of the CAs that would be believed.
	Pinned [][]byte

	shown []shown
}

// shown is what a curator showed: the hashes of the public keys of its CAs.
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
	return fmt.Sprintf("enrol: no curator shows a CA of cluster %s: the SHA-256 of its public key is to be one of %x; %s. "+
		"If these are the addresses of the cluster's curators, the cluster has another CA by now: make a new ticket (`reeve ticket create`). If they are not, somebody else answers there",
		e.ClusterID, e.Pinned, strings.Join(found, ", "))
}

// RefusedError says that the cluster refused a call for what it said, so that saying it again is of no use by itself.
type RefusedError struct {
	// Call is the name of the RPC, and Curator the host:port of who refused it.
	Call, Curator string
	Code          codes.Code
	// Message is why, as the curator says.
	Message string
	// Incarnation says that the node is not the one that the cluster knows; nil: it does not.
	Incarnation *clusterv1.IncarnationRefused
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("enrol: %s: the curator at %s refuses it (%s): %s", e.Call, e.Curator, e.Code, e.Message)
}

// final says whether an error is the answer of the cluster, which no other curator answers differently.
func final(err error) bool {
	var removed *RemovedError
	var refused *RefusedError
	return errors.As(err, &removed) || errors.As(err, &refused)
}

// meaning is what the error of a call says.
func meaning(what call, address string, err error) error {
	answer, ok := status.FromError(err)
	if !ok {
		return err
	}
	refused := &RefusedError{Call: what.name, Curator: address, Code: answer.Code(), Message: answer.Message()}
	for _, detail := range answer.Details() {
		switch detail := detail.(type) {
		case *clusterv1.NodeRemoved:
			if answer.Code() == codes.PermissionDenied && what.nodeID != "" && detail.GetNodeId() == what.nodeID {
				return &RemovedError{NodeID: what.nodeID, Reason: detail.GetReason()}
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
