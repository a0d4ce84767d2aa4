package seal

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/storage"
	names "github.com/reeveproject/reeve/proto/identity"
)

// Phase is how far a node has come on the way to its cluster. It only grows.
type Phase string

// The phases. A node that makes a cluster goes by Forming and Formed, one that comes into a cluster by Registering, Registered and Committing.
const (
	// Made: the node has its keys, and nothing else is there. Nothing can be lost yet.
	Made Phase = "made"
	// Formatting: the volume is being made. Only before this phase has ended may it ever be formatted.
	Formatting Phase = "formatting"
	// Forming: the volume is there, and the store is being made. Nothing of the cluster can be lost yet.
	Forming Phase = "forming"
	// Formed: the store exists. From here on it is never made again.
	Formed Phase = "formed"
	// Registering: the volume is there, and the cluster is being asked to take the node in.
	Registering Phase = "registering"
	// Registered: the cluster has a record of the node, which waits for approval. Its ticket is spent.
	Registered Phase = "registered"
	// Committing: the node is approved, and hands over the cluster's half of the key of its volume.
	Committing Phase = "committing"
	// Member: the node is a member of its cluster for good.
	Member Phase = "member"
)

// phases are all phases, in their order.
var phases = []Phase{Made, Formatting, Forming, Formed, Registering, Registered, Committing, Member}

// Before says whether a node in this phase has still to come to the other one.
func (p Phase) Before(other Phase) bool {
	return cmp.Compare(slices.Index(phases, p), slices.Index(phases, other)) < 0
}

// Configuration is what the node must know to start.
type Configuration struct {
	ClusterID string
	// NodeKey is the key that the node is known by; JoinKey proves a known node whose volume is still locked.
	NodeKey, JoinKey ed25519.PrivateKey
	// Owner is the public key of the cluster's owner, as far as the node knows it; none before the cluster has told it to a node that registers.
	Owner ed25519.PublicKey
	// RecoveryRecipient is the age recipient of the owner's recovery key; empty: there is none.
	RecoveryRecipient string
	VolumeKind        storage.VolumeKind
	// Location is where the volume is.
	Location string
	Phase    Phase
	// CUKSources are the sources of the CUK that the cluster's policy allows, as last heard; none: all.
	CUKSources []string
	// StoreFormed says that this node has a member of the consensus store, whose data is here.
	StoreFormed bool
	// Registration is by what the node finds a cluster that there was before it; nil for a node that has made its cluster.
	Registration *Registration
	// NUK is the node's half of the key of an encrypted volume; NextNUK the one that takes its place, only while it is rotated.
	NUK, NextNUK *keys.Secret
	// CUK and Data are the cluster's half and the volume's key, only until the sources (of a node that registers: the cluster) and the wrapped key have them.
	CUK, Data *keys.Secret
	// Ticket is the secret of the ticket, only until the node is registered.
	Ticket *keys.Secret
}

// Registration is by what a node finds its cluster, and knows it, while its volume is closed or it has no certificates yet. Nothing of it is a secret.
type Registration struct {
	// TicketID is the ID of the ticket that the node registers with.
	TicketID string `json:"ticket_id"`
	// CAPins are the SHA-256 of the public keys of the cluster's CA.
	CAPins [][]byte `json:"ca_pins"`
	// Curators are the cluster's curators as last known: host:port.
	Curators []string `json:"curators"`
}

// NodeID is the node's ID.
func (c *Configuration) NodeID() string {
	return names.NodeID(c.NodeKey.Public().(ed25519.PublicKey))
}

// Destroy zeroes the keys of the volume.
func (c *Configuration) Destroy() {
	for _, secret := range []*keys.Secret{c.NUK, c.NextNUK, c.CUK, c.Data, c.Ticket} {
		secret.Destroy()
	}
}

// check says what is missing in a configuration.
func (c *Configuration) check() error {
	switch {
	case c.ClusterID == "":
		return errors.New("it names no cluster")
	case len(c.NodeKey) != ed25519.PrivateKeySize:
		return errors.New("it has no node key")
	case len(c.JoinKey) != ed25519.PrivateKeySize:
		return errors.New("it has no join key")
	case len(c.Owner) != ed25519.PublicKeySize && (c.Registration == nil || c.Phase == Member || len(c.Owner) != 0):
		return errors.New("it has no owner key")
	case c.Registration != nil && len(c.Registration.CAPins) == 0:
		return errors.New("it registers with a cluster whose CA it does not know")
	case c.VolumeKind == "":
		return errors.New("it names no kind of volume")
	case !slices.Contains(phases, c.Phase):
		return fmt.Errorf("it is in the phase %q, which this reeved does not know", c.Phase)
	case c.VolumeKind != storage.Plain && c.NUK == nil:
		return errors.New("it has no key for its encrypted volume")
	}
	return nil
}

// Sealer protects the key of the configuration.
type Sealer interface {
	// Name is written beside what was sealed, so that another sealer never tries to open it.
	Name() string
	// Seal returns a JSON document.
	Seal(ctx context.Context, secret *keys.Secret) (json.RawMessage, error)
	Unseal(ctx context.Context, sealed json.RawMessage) (*keys.Secret, error)
}

// Head is what of a configuration can be read without its sealer. Nothing proves it before the configuration is loaded: it is for people to see, not to act on.
type Head struct {
	Sealer            string
	ClusterID, NodeID string
	Owner             ed25519.PublicKey
	RecoveryRecipient string
	VolumeKind        storage.VolumeKind
	Location          string
	Phase             Phase
	CUKSources        []string
	StoreFormed       bool
	Registration      *Registration
}

// UnreadableError says that there is a sealed configuration and that it cannot be opened. It wraps why: *OtherSealerError, *storage.VersionError, the sealer's
// error, or that the file is damaged.
type UnreadableError struct {
	// Path is the file.
	Path string
	// Err is why.
	Err error
}

func (e *UnreadableError) Error() string {
	return fmt.Sprintf("seal: the sealed configuration %s is there but cannot be opened (%v): mend that, restore the file from a backup of this node, or open an encrypted volume by the owner's recovery key (`reeve node unlock`); the node is not set up again while the file exists", e.Path, e.Err)
}

// Unwrap returns why the configuration cannot be opened.
func (e *UnreadableError) Unwrap() error { return e.Err }

// OtherSealerError says that a configuration was sealed by another sealer than the one that the node's parameters name. There is no falling back.
type OtherSealerError struct {
	// Sealed is the sealer that sealed it, Wanted the one of the parameters.
	Sealed, Wanted string
}

func (e *OtherSealerError) Error() string {
	return fmt.Sprintf("it was sealed by %q, and this node's parameters say %q: set `seal` in the parameters to what it was", e.Sealed, e.Wanted)
}
