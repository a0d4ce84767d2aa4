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

// The phases. A node that makes a cluster passes Forming and Formed. A node that joins one passes Registering, Registered and Committing.
const (
	// Made: the node has its keys and nothing else. Nothing can be lost.
	Made Phase = "made"
	// Formatting: the volume is being made. It may be formatted only up to this phase.
	Formatting Phase = "formatting"
	// Forming: the volume exists and the store is being made. Nothing of the cluster can be lost.
	Forming Phase = "forming"
	// Formed: the store exists. It is never made again.
	Formed Phase = "formed"
	// Registering: the volume exists and the node asks the cluster to register it.
	Registering Phase = "registering"
	// Registered: the cluster has a record of the node, which waits for approval. The ticket is spent.
	Registered Phase = "registered"
	// Committing: the node is approved and hands over its CUK.
	Committing Phase = "committing"
	// Member: the node is a member of its cluster for good.
	Member Phase = "member"
)

// phases are all phases, in their order.
var phases = []Phase{Made, Formatting, Forming, Formed, Registering, Registered, Committing, Member}

// Before reports whether p comes before other.
func (p Phase) Before(other Phase) bool {
	return cmp.Compare(slices.Index(phases, p), slices.Index(phases, other)) < 0
}

// Configuration is what the node must know to start.
type Configuration struct {
	ClusterID string
	// NodeKey identifies the node. JoinKey proves a known node whose volume is still locked.
	NodeKey, JoinKey ed25519.PrivateKey
	// Owner is the public key of the cluster's owner; none before the cluster has told it to a registering node.
	Owner ed25519.PublicKey
	// RecoveryRecipient is the age recipient of the owner's recovery key; empty if there is none.
	RecoveryRecipient string
	VolumeKind        storage.VolumeKind
	// Location is where the volume is.
	Location string
	Phase    Phase
	// CUKSources are the sources of the CUK that the cluster's policy allows, as last heard; none means all.
	CUKSources []string
	// StoreFormed says that this node has a member of the consensus store, whose data is here.
	StoreFormed bool
	// Registration says how the node finds its cluster; nil for a node that made its cluster.
	Registration *Registration
	// Restored is the SHA-256 of the payload of the snapshot of which this node's cluster was restored, or is being restored before the phase Member; empty: it was not.
	Restored string
	// NUK is the node unlock key of an encrypted volume. NextNUK replaces it and exists only during a rotation.
	NUK, NextNUK *keys.Secret
	// CUK and Data are the cluster unlock key and the data key. They are kept only until a source of the CUK (for a registering node, the cluster)
	// and the wrapped key have them.
	CUK, Data *keys.Secret
	// Ticket is the ticket's secret, until the node is registered.
	Ticket *keys.Secret
}

// Registration says how a node finds and recognizes its cluster while its volume is closed or it has no certificates. It is no secret.
type Registration struct {
	// TicketID is the ID of the ticket that the node registers with.
	TicketID string `json:"ticket_id"`
	// CAPins are the SHA-256 of the cluster CA's public keys.
	CAPins [][]byte `json:"ca_pins"`
	// Curators are the last known curators: host:port.
	Curators []string `json:"curators"`
}

// NodeID returns the node's ID.
func (c *Configuration) NodeID() string {
	return names.NodeID(c.NodeKey.Public().(ed25519.PublicKey))
}

// Destroy zeroes the volume's keys and the ticket.
func (c *Configuration) Destroy() {
	for _, secret := range []*keys.Secret{c.NUK, c.NextNUK, c.CUK, c.Data, c.Ticket} {
		secret.Destroy()
	}
}

// check says what is missing.
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
		return errors.New("it has no CA pin for the cluster that it registers with")
	case c.VolumeKind == "":
		return errors.New("it names no kind of volume")
	case !slices.Contains(phases, c.Phase):
		return fmt.Errorf("this reeved does not know its phase %q", c.Phase)
	case c.VolumeKind != storage.Plain && c.NUK == nil:
		return errors.New("it has no key for its encrypted volume")
	}
	return nil
}

// Sealer protects the configuration key.
type Sealer interface {
	// Name is stored beside the sealed key, so that another sealer never tries to open it.
	Name() string
	// Seal returns a JSON document.
	Seal(ctx context.Context, secret *keys.Secret) (json.RawMessage, error)
	Unseal(ctx context.Context, sealed json.RawMessage) (*keys.Secret, error)
}

// Head is the public part of a configuration, readable without the sealer. It is not authenticated before Load: show it to people, but do not act on
// it.
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
	Restored          string
}

// UnreadableError says that the sealed configuration exists but cannot be opened. It wraps the reason: *OtherSealerError, *storage.VersionError, the
// sealer's error, or damage.
type UnreadableError struct {
	// Path is the file.
	Path string
	// Err is the reason.
	Err error
}

func (e *UnreadableError) Error() string {
	return fmt.Sprintf("seal: cannot open the sealed configuration %s (%v): fix that, restore the file from a backup of this node, or open an encrypted volume with the owner's recovery key (`reeve node unlock`); the node is not set up again while the file exists", e.Path, e.Err)
}

// Unwrap returns the reason.
func (e *UnreadableError) Unwrap() error { return e.Err }

// OtherSealerError says that another sealer than the parameters' sealed the configuration. There is no fallback.
type OtherSealerError struct {
	// Sealed is the sealer in the file, Wanted the one of the parameters.
	Sealed, Wanted string
}

func (e *OtherSealerError) Error() string {
	return fmt.Sprintf("the sealer %q sealed it, but this node's parameters say %q: set `seal` in the parameters to the former", e.Sealed, e.Wanted)
}
