package seal

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/reeveproject/reeve/core/storage"
)

// version is the version of the format of the sealed configuration.
const version = 1

// maxSize bounds the file: it holds a few keys and names.
const maxSize = 1 << 20

// Phase is how far a node has come on the way to its cluster. It only grows.
type Phase string

// The phases of a node that makes a cluster.
const (
	// Forming: the cluster has an ID, and the store is being made. Nothing of the cluster can be lost yet.
	Forming Phase = "forming"
	// Formed: the store exists. From here on it is never made again.
	Formed Phase = "formed"
	// Member: the node is a member of its cluster for good.
	Member Phase = "member"
)

// Configuration is what the node must know to start.
type Configuration struct {
	ClusterID string
	// NodeKey is the key that the node is known by.
	NodeKey ed25519.PrivateKey
	// Owner is the public key of the cluster's owner, as far as the node knows it.
	Owner      ed25519.PublicKey
	VolumeKind storage.VolumeKind
	Phase      Phase
}

// Sealer protects the secrets of the configuration.
type Sealer interface {
	// Name is written beside what was sealed, so that another sealer never tries to open it.
	Name() string
	Seal(secret []byte) ([]byte, error)
	Unseal(sealed []byte) ([]byte, error)
}

// File is the Sealer that leaves secrets as they are: the file's permissions, 0400, are all that protects them.
type File struct{}

// Name implements Sealer.
func (File) Name() string { return "file" }

// Seal implements Sealer.
func (File) Seal(secret []byte) ([]byte, error) { return secret, nil }

// Unseal implements Sealer.
func (File) Unseal(sealed []byte) ([]byte, error) { return sealed, nil }

// UnreadableError says that there is a sealed configuration and that it cannot be opened.
type UnreadableError struct {
	// Path is the file.
	Path string
	// Err is why.
	Err error
}

func (e *UnreadableError) Error() string {
	return fmt.Sprintf("seal: the sealed configuration %s is there but cannot be opened (%v): restore the file from a backup of this node; the node is not set up again while it exists", e.Path, e.Err)
}

// Unwrap returns why the configuration cannot be opened.
func (e *UnreadableError) Unwrap() error { return e.Err }

// document is the file.
type document struct {
	Version    int                `json:"version"`
	Sealer     string             `json:"sealer"`
	ClusterID  string             `json:"cluster_id"`
	Owner      []byte             `json:"owner_public_key"`
	VolumeKind storage.VolumeKind `json:"volume_kind"`
	Phase      Phase              `json:"phase"`
	// Sealed is the seed of the node key, sealed.
	Sealed []byte `json:"sealed"`
}

// Store is the sealed configuration on disk.
type Store struct {
	path   string
	sealer Sealer
}

// NewStore returns the store of the configuration in the file at path.
func NewStore(path string, sealer Sealer) *Store {
	return &Store{path: path, sealer: sealer}
}

// Load returns the configuration, or nil if there is none. *UnreadableError if there is one that cannot be opened.
func (s *Store) Load() (*Configuration, error) {
	info, err := os.Lstat(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, &UnreadableError{Path: s.path, Err: err}
	}
	if !info.Mode().IsRegular() || info.Size() > maxSize {
		return nil, &UnreadableError{Path: s.path, Err: fmt.Errorf("it is not a small regular file (%s, %d bytes)", info.Mode(), info.Size())}
	}
	content, err := os.ReadFile(s.path)
	if err != nil {
		return nil, &UnreadableError{Path: s.path, Err: err}
	}
	configuration, err := s.parse(content)
	if err != nil {
		return nil, &UnreadableError{Path: s.path, Err: err}
	}
	return configuration, nil
}

func (s *Store) parse(content []byte) (*Configuration, error) {
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(content, &head); err != nil {
		return nil, errors.New("it is not a JSON document")
	}
	if head.Version != version {
		return nil, fmt.Errorf("it has version %d, this reeved reads version %d: use the reeved that wrote it, or a newer one", head.Version, version)
	}
	var d document
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&d); err != nil {
		// The decoder's text may quote what it read, and that may be a secret.
		return nil, errors.New("its fields are not those of a sealed configuration")
	}
	if d.Sealer != s.sealer.Name() {
		return nil, fmt.Errorf("it was sealed by %q, and this node is set up to use %q", d.Sealer, s.sealer.Name())
	}
	switch d.Phase {
	case Forming, Formed, Member:
	default:
		return nil, fmt.Errorf("it is in the phase %q, which this reeved does not know", d.Phase)
	}
	seed, err := s.sealer.Unseal(d.Sealed)
	if err != nil {
		return nil, fmt.Errorf("its secrets cannot be unsealed: %w", err)
	}
	if len(seed) != ed25519.SeedSize || d.ClusterID == "" || len(d.Owner) != ed25519.PublicKeySize {
		return nil, errors.New("it is incomplete")
	}
	return &Configuration{
		ClusterID:  d.ClusterID,
		NodeKey:    ed25519.NewKeyFromSeed(seed),
		Owner:      d.Owner,
		VolumeKind: d.VolumeKind,
		Phase:      d.Phase,
	}, nil
}

// Save replaces the configuration, atomically and durably.
func (s *Store) Save(c *Configuration) error {
	sealed, err := s.sealer.Seal(c.NodeKey.Seed())
	if err != nil {
		return fmt.Errorf("seal: sealing by %q: %w", s.sealer.Name(), err)
	}
	return storage.WriteJSON(s.path, document{
		Version: version, Sealer: s.sealer.Name(), ClusterID: c.ClusterID, Owner: c.Owner, VolumeKind: c.VolumeKind, Phase: c.Phase, Sealed: sealed,
	}, 0o400)
}
