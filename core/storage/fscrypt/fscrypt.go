package fscrypt

import (
	"github.com/hashicorp/go-hclog"

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
}

// New returns the volume. It touches nothing.
func New(Config) volume.Kind { panic("skeleton") }
