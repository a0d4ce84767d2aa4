package output

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Setup is the document of `reeve init`.
type Setup struct {
	// DryRun says that nothing was made.
	DryRun bool `json:"dry_run"`
	// File is that of the parameters.
	File string `json:"file"`
	// Parameters is what is in it: the message reeve.node.v1.Parameters.
	Parameters json.RawMessage `json:"parameters"`
	// OwnerPublicKey is base64; empty in a dry run if the key would have to be made.
	OwnerPublicKey string `json:"owner_public_key"`
	// OwnerKeyFile is the file with the private key; empty: the owner has it elsewhere.
	OwnerKeyFile string `json:"owner_key_file"`
	OwnerKeyMade bool   `json:"owner_key_made"`
	// Made is the files and directories that were not there before.
	Made []string `json:"made"`
	// Continues says that the state is that of a node which has a cluster already.
	Continues bool `json:"continues"`
	// Text is the file as it is, for people.
	Text string `json:"-"`
}

func (s Setup) table(w io.Writer, _ time.Time) {
	did := "made"
	if s.DryRun {
		did = "would make"
	}
	for _, path := range s.Made {
		row(w, did, path)
	}
	if s.DryRun {
		_, _ = fmt.Fprintf(w, "\n%s", s.Text)
	}
}
