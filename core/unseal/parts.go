package unseal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/checkpoint"
	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/params"
	"github.com/reeveproject/reeve/core/seal"
	"github.com/reeveproject/reeve/core/seal/tpm2"
	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/core/storage/fscrypt"
	"github.com/reeveproject/reeve/core/storage/luks"
	"github.com/reeveproject/reeve/core/storage/volume"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// parts are what the parameters put a room together from.
type parts struct {
	sealer seal.Sealer
	// tpm is the sealer, if it is a TPM.
	tpm tpm
	// kind returns the volume of a node; what Describe says of it needs no node ID.
	kind func(nodeID string) volume.Kind
	// consumed remembers which parameters made a node.
	consumed func() (consumed, error)
	// join asks the cluster for its half of the key of a volume.
	join func(ctx context.Context, configuration *seal.Configuration, request *clusterv1.JoinRequest) (*clusterv1.JoinResponse, error)
	// at is told of every step before it is taken. An error keeps it from being taken.
	at func(checkpoint.Step) error
}

// tpm seals a secret to a state of the machine.
type tpm interface {
	seal.Sealer
	SealFor(ctx context.Context, secret *keys.Secret, values map[uint32][]byte) (json.RawMessage, error)
	PCRs() []uint32
}

type consumed interface {
	Check(parameters *nodev1.Parameters, ticketID string) error
	Mark(parameters *nodev1.Parameters, ticketID, nodeID, clusterID string) error
}

func partsOf(config Config) (parts, error) {
	kind, err := kindOf(config.Parameters, config.Storage.Layout, config.Log)
	if err != nil {
		return parts{}, err
	}
	p := parts{
		sealer: seal.File{}, kind: kind, join: joinOf(config.Log.Named("join")),
		at:       func(step checkpoint.Step) error { checkpoint.At(step); return nil },
		consumed: func() (consumed, error) { return params.OpenConsumed(config.Storage.Consumed()) },
	}
	if wanted := config.Parameters.GetSeal().GetTpm2(); wanted != nil {
		p.tpm = tpm2.New(tpm2.Config{
			Log: config.Log.Named("tpm2"), Device: wanted.GetDevice(), PCRs: wanted.GetPcrs(), Timeout: wanted.GetTimeout().AsDuration(),
		})
		p.sealer = p.tpm
	}
	return p, nil
}

// LayoutOf names the files and directories of a node, by its parameters: some of them are where its kind of volume says.
func LayoutOf(parameters *nodev1.Parameters) (storage.Layout, error) {
	layout := storage.NewLayout(parameters.GetDirectories())
	kind, err := kindOf(parameters, layout, hclog.NewNullLogger())
	if err != nil {
		return storage.Layout{}, err
	}
	layout.Clear = kind("").Describe().Clear
	return layout, nil
}

// kindOf returns the kind of volume that the parameters ask for.
func kindOf(parameters *nodev1.Parameters, layout storage.Layout, log hclog.Logger) (func(nodeID string) volume.Kind, error) {
	step := func(name string) { checkpoint.At(checkpoint.Volume(name)) }
	switch wanted := parameters.GetVolume().GetKind().(type) {
	case *nodev1.Volume_Plain:
		return func(string) volume.Kind { return volume.NewPlain(layout.Data) }, nil
	case *nodev1.Volume_Fscrypt:
		c := fscrypt.Config{Log: log.Named("fscrypt"), Data: layout.Data, Step: step}
		if image := wanted.Fscrypt.GetImage(); image != nil {
			c.Image, c.Size, c.Mount = image.GetPath(), image.GetSizeBytes(), layout.ImageMount()
			if c.Image == "" {
				c.Image = layout.Image()
			}
			if filepath.Dir(c.Image) == filepath.Clean(layout.Data) {
				return nil, fmt.Errorf("unseal: the image %s lies in the data directory, at which it would be mounted: put it elsewhere (volume.fscrypt.image.path of the parameters)", c.Image)
			}
		}
		return func(string) volume.Kind { return fscrypt.New(c) }, nil
	case *nodev1.Volume_Luks:
		return func(nodeID string) volume.Kind {
			return luks.New(luks.Config{Log: log.Named("luks"), Device: wanted.Luks.GetDevice(), Data: layout.Data, NodeID: nodeID, Step: step})
		}, nil
	}
	return nil, errors.New("unseal: the parameters name no kind of volume: set `volume` to plain, fscrypt or luks")
}
