package fscrypt

import (
	"os"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/core/storage/volume"
)

// Config says where the volume is.
type Config struct {
	Log hclog.Logger
	// Data is the node's data directory.
	Data string
	// Image is the image file; empty: Data itself is encrypted.
	Image string
	// Size is the size of a new image in bytes; 0 means 8 GiB.
	Size int64
	// Mount is where the image's file system is mounted, for the core only.
	Mount string
	// Step, if not nil, is called before each step in which Format, Open and Close change the system.
	Step func(step string)
}

// KeySize is the key's size in bytes, the largest that the kernel takes.
const KeySize = 64

// MinSize is the smallest size of an image, defaultSize the one without a parameter.
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

// needRoot fails for an ordinary user before the system would, halfway.
func needRoot(doing string) error {
	if os.Geteuid() != 0 {
		return &volume.NeedsRootError{Kind: string(storage.Fscrypt), Doing: doing}
	}
	return nil
}
