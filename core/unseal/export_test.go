package unseal

import (
	"context"

	"github.com/reeveproject/reeve/core/checkpoint"
	"github.com/reeveproject/reeve/core/seal"
	"github.com/reeveproject/reeve/core/storage/volume"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// TPM is what stands for a TPM in the tests.
type TPM = tpm

// Join is how the cluster is asked for its half of a key in the tests.
type Join = func(context.Context, *seal.Configuration, *clusterv1.JoinRequest) (*clusterv1.JoinResponse, error)

// SetJoin has a room ask the cluster in another way.
func (r *Room) SetJoin(join Join) { r.parts.join = join }

// LoseCUK destroys the CUK that is in the sealed configuration. It is for a step that the room takes.
func (r *Room) LoseCUK() { r.configuration.CUK.Destroy() }

// NewWith is New with a TPM (nil: the parameters' sealer), a volume (nil: the parameters') and a function that is told of every step.
func NewWith(config Config, sealer TPM, kind func(nodeID string) volume.Kind, at func(checkpoint.Step) error) (*Room, error) {
	parts, err := partsOf(config)
	if err != nil {
		return nil, err
	}
	if sealer != nil {
		parts.sealer, parts.tpm = sealer, sealer
	}
	if kind != nil {
		parts.kind = kind
	}
	if at != nil {
		parts.at = at
	}
	return newRoom(config, parts)
}
