package store

import (
	"errors"
	"fmt"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// ErrNoCluster says that nobody has called Bootstrap on this store yet.
var ErrNoCluster = errors.New("the store holds no cluster yet")

// ErrNoNode says that there is no record of the node that a call is about.
var ErrNoNode = errors.New("the cluster has no record of the node")

// RemovedError says that the node that a call is about was removed from the cluster.
type RemovedError struct {
	// Node is its tombstone.
	Node *clusterv1.NodeRecord
	// Generation is that of the store that has it; nil: it is the first one.
	Generation *consensusv1.StoreGeneration
}

func (e *RemovedError) Error() string {
	return fmt.Sprintf("node %s was removed from the cluster", e.Node.GetId())
}

// ErrConflict says that other writes kept getting in between, as often as a write is tried.
var ErrConflict = errors.New("other changes of the cluster got in the way every time: try again")

// ErrFull says that the store has reached its quota, and takes nothing before there is room again.
var ErrFull = errors.New("the consensus store is full")

// UnavailableError says that the consensus store did not answer, in time or at all. Whether a write that met it was made is not known, unless it is Unbegun.
type UnavailableError struct {
	// Doing is what was being done, such as "read the records".
	Doing string
	Err   error
	// Unbegun says that a change was to be made of which nothing was.
	Unbegun bool
}

func (e *UnavailableError) Error() string {
	return fmt.Sprintf("the consensus store did not let the curator %s: %v", e.Doing, e.Err)
}

func (e *UnavailableError) Unwrap() error { return e.Err }

// RecordError says that a record cannot be read: it is damaged, or a later version wrote it.
type RecordError struct {
	Key string
	Err error
}

func (e *RecordError) Error() string { return fmt.Sprintf("record %q: %v", e.Key, e.Err) }

func (e *RecordError) Unwrap() error { return e.Err }

// FormatError says that the store is laid out as another version of the curator does it.
type FormatError struct {
	Format uint32
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("the cluster's state has format %d, and this curator knows only format %d: run the curator's plugin in the version that wrote it, or a later one",
		e.Format, Format)
}

// TooManyError says that a write changes more records than the store takes in one transaction.
type TooManyError struct {
	Records, Limit int
}

func (e *TooManyError) Error() string {
	return fmt.Sprintf("the change writes %d records, more than the %d that the store takes at once: make it in parts, node by node", e.Records, e.Limit)
}

// TooLargeError says that a write is larger than the store takes in one transaction.
type TooLargeError struct {
	Bytes, Limit int
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the change takes %d bytes, more than the %d that the store takes at once: make configurations or manifests smaller", e.Bytes, e.Limit)
}
