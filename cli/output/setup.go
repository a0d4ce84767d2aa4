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
	// Address is by which others reach the machine; empty: it has none of that kind at the time. Addresses are those of the machine, the chosen ones first, without
	// loopback and link-local ones.
	Address   string           `json:"address"`
	Addresses []MachineAddress `json:"addresses"`
	// Continues says that the state is that of a node which has a cluster already.
	Continues bool `json:"continues"`
	// Text is the file as it is, for people.
	Text string `json:"-"`
}

// MachineAddress is an address of an interface of the machine.
type MachineAddress struct {
	Address   string `json:"address"`
	Interface string `json:"interface"`
	// Reason says why others are not told this one; empty: they are, unless the parameters name another one.
	Reason string `json:"reason"`
}

func (s Setup) table(w io.Writer, _ time.Time) {
	did := "made"
	if s.DryRun {
		did = "would make"
	}
	for _, path := range s.Made {
		row(w, did, path)
	}
	for _, a := range s.Addresses {
		what, place := "address", a.Address+" of "+a.Interface
		if a.Reason != "" {
			what, place = "not told", place+": "+a.Reason
		}
		row(w, what, place)
	}
	if s.DryRun {
		_, _ = fmt.Fprintf(w, "\n%s", s.Text)
	}
}
