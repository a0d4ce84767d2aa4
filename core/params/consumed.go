package params

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/core/storage"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

const (
	// consumedVersion is the version of the file's format.
	consumedVersion = 1
	// maxConsumed is how many parameters are kept, the newest: a machine is not set up more often than that, and the file stays small.
	maxConsumed = 256
	// consumedMode is that of the file. It holds no secret; nobody should change it.
	consumedMode = 0o400
)

// ConsumedError says that parameters have made a node already and are not used to make another.
type ConsumedError struct {
	// Path is the file that remembers it.
	Path string
	// NodeID and ClusterID are what they made.
	NodeID, ClusterID string
}

func (e *ConsumedError) Error() string {
	return fmt.Sprintf("params: these parameters made node %s of cluster %s already (%s says so), and the node's sealed configuration is missing: they are not used "+
		"a second time. Bring the node's system directory back (its configuration.json, or its recovery.age for `reeve node unlock`). To give this node up and "+
		"make a new cluster, move its system and data directories away", e.NodeID, e.ClusterID, e.Path)
}

// ConsumedFileError says that the file of consumed parameters cannot be used.
type ConsumedFileError struct {
	// Path is the file.
	Path string
	// Err is what is wrong with it.
	Err error
}

func (e *ConsumedFileError) Error() string {
	return fmt.Sprintf("params: which parameters made a node already cannot be read from %s: %v. Restore the file from a copy; if this machine is a node of no cluster, "+
		"or is one whose configuration.json is beside it, remove it", e.Path, e.Err)
}

// Unwrap returns what is wrong.
func (e *ConsumedFileError) Unwrap() error { return e.Err }

// Consumed remembers which parameters made a node on this machine, so that none does so twice. It is not for use by several goroutines.
type Consumed struct {
	path string
	made []consumption
}

// consumedFile is the form of the file.
type consumedFile struct {
	Version int           `json:"version"`
	Made    []consumption `json:"made"`
	// Sum is the SHA-256 of what is above: a digest that a disk has changed would be another one's.
	Sum string `json:"sum"`
}

// consumption is parameters that were used.
type consumption struct {
	// Digest is that of the part of the parameters that enrols.
	Digest    string `json:"digest"`
	NodeID    string `json:"node_id"`
	ClusterID string `json:"cluster_id"`
}

// OpenConsumed reads the file. Nothing was consumed if there is none. *ConsumedFileError if there is one that cannot be used: a member that has its
// configuration needs it for nothing and can go on; what is about to make a node must not.
func OpenConsumed(path string) (*Consumed, error) {
	content, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &Consumed{path: path}, nil
	case err != nil:
		return nil, &ConsumedFileError{Path: path, Err: err}
	}
	made, err := decodeConsumed(content)
	if err != nil {
		return nil, &ConsumedFileError{Path: path, Err: err}
	}
	return &Consumed{path: path, made: made}, nil
}

// Check fails with *ConsumedError if the parameters made a node already. What does not enrol (a log level, a listening address) may be another than it was. Of
// parameters that register it is the ticket, by its ID, that makes the node; the others have none.
func (c *Consumed) Check(parameters *nodev1.Parameters, ticketID string) error {
	digest, err := enrolment(parameters, ticketID)
	if err != nil {
		return err
	}
	for _, made := range slices.Backward(c.made) {
		if made.Digest == digest {
			return &ConsumedError{Path: c.path, NodeID: made.NodeID, ClusterID: made.ClusterID}
		}
	}
	return nil
}

// Mark remembers that the parameters made a node. It is called when the node's sealed configuration is on disk and not sooner, again at every start until the
// node is a member: if the first call was lost, the configuration stands in for it. What is remembered already is not written again.
func (c *Consumed) Mark(parameters *nodev1.Parameters, ticketID, nodeID, clusterID string) error {
	digest, err := enrolment(parameters, ticketID)
	if err != nil {
		return err
	}
	made := consumption{Digest: digest, NodeID: nodeID, ClusterID: clusterID}
	if slices.Contains(c.made, made) {
		return nil
	}
	next := append(slices.Clip(c.made), made)
	next = next[max(0, len(next)-maxConsumed):]
	content, err := encodeConsumed(next)
	if err != nil {
		return err
	}
	if err := storage.WriteFile(c.path, content, consumedMode); err != nil {
		return fmt.Errorf("params: that the parameters made a node cannot be kept: %w", err)
	}
	c.made = next
	return nil
}

// enrolment is the digest of what of the parameters makes the node: two documents that differ in form or in anything else have the same.
func enrolment(parameters *nodev1.Parameters, ticketID string) (string, error) {
	if ticketID != "" {
		// Not where the ticket is from, since the next one may lie there too, nor what is asked for with it: a machine has one of a ticket's uses.
		digest := sha256.Sum256([]byte("reeve.node.v1.Register\x00" + ticketID))
		return hex.EncodeToString(digest[:]), nil
	}
	// Field by field in the order of their numbers, and maps in the order of their keys. A field that a later version adds is not there in older documents, so their
	// digests stay.
	content, err := proto.MarshalOptions{Deterministic: true}.Marshal(parameters.GetBootstrap())
	if err != nil {
		return "", fmt.Errorf("params: the digest of the parameters: %w", err)
	}
	digest := sha256.Sum256(append([]byte("reeve.node.v1.Bootstrap\x00"), content...))
	return hex.EncodeToString(digest[:]), nil
}

func encodeConsumed(made []consumption) ([]byte, error) {
	file := consumedFile{Version: consumedVersion, Made: made}
	unsigned, err := json.Marshal(file)
	if err != nil {
		return nil, fmt.Errorf("params: %w", err)
	}
	sum := sha256.Sum256(unsigned)
	file.Sum = hex.EncodeToString(sum[:])
	content, err := json.MarshalIndent(file, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("params: %w", err)
	}
	return append(content, '\n'), nil
}

// decodeConsumed takes exactly what encodeConsumed writes: a file with any other byte was changed by somebody else.
func decodeConsumed(content []byte) ([]consumption, error) {
	var version struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(content, &version); err != nil {
		return nil, fmt.Errorf("it is damaged: %w", err)
	}
	if version.Version > consumedVersion {
		return nil, fmt.Errorf("it is of version %d, and this reeved knows up to %d: use the newer reeved that wrote it", version.Version, consumedVersion)
	}
	var file consumedFile
	if err := json.Unmarshal(content, &file); err != nil {
		return nil, fmt.Errorf("it is damaged: %w", err)
	}
	same, err := encodeConsumed(file.Made)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(same, content) {
		return nil, errors.New("it is damaged: it is not what was written")
	}
	return file.Made, nil
}
