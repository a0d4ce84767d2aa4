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
	// consumedVersion is the format version of the file.
	consumedVersion = 1
	// maxConsumed is how many parameters are kept, the newest. No machine is set up more often, and the file stays small.
	maxConsumed = 256
	// consumedMode is the file's mode. It holds no secret, but nobody should change it.
	consumedMode = 0o400
)

// ConsumedError says that parameters already made a node and must not make another.
type ConsumedError struct {
	// Path is the file that says so.
	Path string
	// NodeID and ClusterID are the node and cluster that they made.
	NodeID, ClusterID string
}

func (e *ConsumedError) Error() string {
	return fmt.Sprintf("params: these parameters already made node %s of cluster %s (see %s), and the node's sealed configuration is missing: they are not used "+
		"a second time. Restore the node's system directory (its configuration.json, or its recovery.age for `reeve node unlock`). To give this node up and "+
		"make a new one, move its system and data directories away, and run reeved once with --again", e.NodeID, e.ClusterID, e.Path)
}

// ConsumedFileError says that the file of consumed parameters is unusable.
type ConsumedFileError struct {
	// Path is the file.
	Path string
	// Err is the reason.
	Err error
}

func (e *ConsumedFileError) Error() string {
	return fmt.Sprintf("params: cannot read from %s which parameters already made a node: %v. Restore the file from a copy. If this machine is not a node of a cluster, "+
		"or its system directory with configuration.json is there, remove the file", e.Path, e.Err)
}

// Unwrap returns the reason.
func (e *ConsumedFileError) Unwrap() error { return e.Err }

// Consumed remembers which parameters made a node on this machine, so that none does so twice. It is not safe for concurrent use.
type Consumed struct {
	path string
	made []consumption
}

// consumedFile is the content of the file.
type consumedFile struct {
	Version int           `json:"version"`
	Made    []consumption `json:"made"`
	// Sum is the SHA-256 of the fields above. It detects damage, which could otherwise turn a digest into another one's.
	Sum string `json:"sum"`
}

// consumption is one use of parameters.
type consumption struct {
	// Digest is the digest of the enrolling part of the parameters.
	Digest    string `json:"digest"`
	NodeID    string `json:"node_id"`
	ClusterID string `json:"cluster_id"`
}

// OpenConsumed reads the file. A missing file means that nothing was consumed. *ConsumedFileError if it is unusable: a member with its configuration
// can go on without it, but no node may be made.
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

// Check fails with *ConsumedError if the parameters already made a node. Only the enrolling part counts, not a log level or a listening address. For
// parameters that register, that is the ticket's ID; others have none.
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

// Mark records that the parameters made a node. Call it once the node's sealed configuration is on disk, and at every start until the node is a
// member: if an earlier call was lost, the configuration stands in for it. It does not write what is recorded already.
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
		return fmt.Errorf("params: cannot record that the parameters made a node: %w", err)
	}
	c.made = next
	return nil
}

// enrolment returns the digest of the part of the parameters that makes the node. It ignores the document's format and all other fields.
func enrolment(parameters *nodev1.Parameters, ticketID string) (string, error) {
	if ticketID != "" {
		// Only the ticket's ID counts. The path does not, since the next ticket may be at the same path, nor what is requested with it: a machine has
		// one use of a ticket.
		digest := sha256.Sum256([]byte("reeve.node.v1.Register\x00" + ticketID))
		return hex.EncodeToString(digest[:]), nil
	}
	// Fields in the order of their numbers, map entries in the order of their keys. Older documents lack a field that a later version adds, so their
	// digests stay.
	content, err := proto.MarshalOptions{Deterministic: true}.Marshal(parameters.GetBootstrap())
	if err != nil {
		return "", fmt.Errorf("params: compute the digest of the parameters: %w", err)
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

// decodeConsumed accepts only what encodeConsumed writes. Any other byte is damage.
func decodeConsumed(content []byte) ([]consumption, error) {
	var version struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(content, &version); err != nil {
		return nil, fmt.Errorf("it is damaged: %w", err)
	}
	if version.Version > consumedVersion {
		return nil, fmt.Errorf("it has version %d, and this reeved reads versions up to %d: use the newer reeved that wrote it", version.Version, consumedVersion)
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
		return nil, errors.New("it is damaged: its content does not match its sum")
	}
	return file.Made, nil
}
