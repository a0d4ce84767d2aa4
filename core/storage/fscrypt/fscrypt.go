package fscrypt

import (
	"os"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/core/storage/volume"
)

// Config is where the volume is.
type Config struct {
	Log hclog.Logger
	// Data is the node's data directory.
	Data string
	// Image is the file of the file system; empty: Data itself is encrypted.
	Image string
	// Size is how large the file system in Image is made, in bytes; 0: 8 GiB.
	Size int64
	// Mount is the directory at which the file system of Image is mounted, for the core alone.
	Mount string
	// Step, unless it is nil, is told of each step by which Format, Open and Close change the system, before it is taken.
	Step func(step string)
}

// KeySize is the size of the key, in bytes: the largest that the kernel takes.
const KeySize = 64

// MinSize is the size of an image at least, and defaultSize the one that it has unless the parameters say otherwise.
const (
	MinSize     int64 = 256 << 20
	defaultSize int64 = 8 << 30
)

// New returns the volume. It touches nothing.
func New(config Config) volume.Kind {
	if config.Log == nil {
		config.Log = hclog.NewNullLogger()
	}
	if config.Step == nil {
		config.Step = func(string) {}
	}
	if config.Size == 0 {
		config.Size = defaultSize
	}
	if config.Image == "" {
		return &directory{Config: config}
	}
	return &image{Config: config}
}

func (c Config) describe(location string) volume.Description {
	return volume.Description{Kind: storage.Fscrypt, Encrypted: true, Location: location, KeySize: KeySize}
}

// needRoot keeps an ordinary user from a step that the system would refuse halfway.
func needRoot(doing string) error {
	if os.Geteuid() != 0 {
		return &volume.NeedsRootError{Kind: string(storage.Fscrypt), Doing: doing}
	}
	return nil
}
