package unseal

import (
	"context"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/seal"
	"github.com/reeveproject/reeve/core/storage"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// Config is what a Room works with.
type Config struct {
	Log hclog.Logger
	// Storage are the node's directories, which the core holds.
	Storage *storage.Storage
	// Parameters are those of the node.
	Parameters *nodev1.Parameters
}

// Room is the node's volume and its keys.
type Room struct{ config Config }

// New returns the room. It fails if what is in system/ can never be opened by these parameters, with or without the recovery key.
func New(Config) (*Room, error) { panic("skeleton") }

// Status is what the node's status and its report to the cluster say of storage.
func (r *Room) Status() *event.Value[*clusterv1.StorageStatus] { panic("skeleton") }

// NodeID is the node's ID; empty before the node has a key.
func (r *Room) NodeID() string { panic("skeleton") }

// Open takes the node to its open volume, and returns what it must know to go on. It makes a node that is new, and waits for a key as long as it takes. It
// fails with the context's error, and with those that neither time nor the recovery key can mend.
func (r *Room) Open(ctx context.Context) (*Opened, error) { panic("skeleton") }

// Opened is an open volume.
type Opened struct {
	// Sealed keeps the configuration.
	Sealed *seal.Store
	// Configuration is what the node must know to start.
	Configuration *seal.Configuration
}

// Close forgets the keys, closes the volume and proves that it is closed. *volume.BusyError if it is in use: it may be called again. After Close with sealed,
// Open waits for Unlock and asks no other source.
func (r *Room) Close(ctx context.Context, sealed bool) error { panic("skeleton") }

// RecoveryFile is what the RPC GetRecoveryFile answers.
func (r *Room) RecoveryFile() (*nodev1.GetRecoveryFileResponse, error) { panic("skeleton") }

// Unlock gives what a recovery file held to the Open that waits, and returns when the volume is open. The request is zeroed.
func (r *Room) Unlock(ctx context.Context, request *nodev1.UnlockRequest) (*nodev1.UnlockResponse, error) {
	panic("skeleton")
}

// RotateKeys is what the RPC of the name does.
func (r *Room) RotateKeys(ctx context.Context, request *nodev1.RotateKeysRequest) (*nodev1.RotateKeysResponse, error) {
	panic("skeleton")
}

// Reseal is what the RPC of the name does.
func (r *Room) Reseal(ctx context.Context, request *nodev1.ResealRequest) (*nodev1.ResealResponse, error) {
	panic("skeleton")
}

// Allow takes the sources of the CUK that the cluster's policy allows; none: all. What is not allowed any more is removed from the node.
func (r *Room) Allow(ctx context.Context, sources []string) error { panic("skeleton") }
