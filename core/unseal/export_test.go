package unseal

import (
	"github.com/reeveproject/reeve/core/checkpoint"
	"github.com/reeveproject/reeve/core/storage/volume"
)

// TPM is what stands for a TPM in the tests.
type TPM = tpm

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
