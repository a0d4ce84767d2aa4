package target

import (
	"errors"
	"io/fs"
	"os"

	"github.com/reeveproject/reeve/cli/fault"
)

// DefaultDirectory is the dev directory that is meant if nothing else is said: the one that `make run` uses.
const DefaultDirectory = "./var/dev"

// Options say which cluster is meant.
type Options struct {
	// Dir is a dev directory. Empty: DefaultDirectory if it exists, unless Address is set.
	Dir string
	// Address is the host:port of a curator; excludes Dir.
	Address string
	// CAFile holds the certificates of the cluster CA, PEM. Needed with Address.
	CAFile string
	// OwnerKeyFile holds the owner's Ed25519 private key, PKCS #8 in PEM. Needed with Address; with Dir the default is D/owner.key.
	OwnerKeyFile string
}

// resolve checks the options and fills in the defaults.
func (o Options) resolve() (Options, error) {
	if o.Address != "" {
		if o.Dir != "" {
			return o, fault.New(fault.Usage, "--dir and --address name two clusters", "Give one of them.")
		}
		if o.CAFile == "" || o.OwnerKeyFile == "" {
			return o, fault.New(fault.Usage, "--address alone does not prove who is there", "Give --ca and --owner-key too.")
		}
		return o, nil
	}
	if o.CAFile != "" {
		return o, fault.New(fault.Usage, "--ca is given without --address", "Give the address of a curator, or leave it out with --dir.")
	}
	if o.Dir == "" {
		if _, err := os.Stat(DefaultDirectory); err != nil {
			return o, fault.New(fault.Usage, "no cluster is named, and there is no "+DefaultDirectory,
				"Give --dir, or --address with --ca and --owner-key; `reeve dev up` makes a cluster.")
		}
		o.Dir = DefaultDirectory
	}
	if _, err := os.Stat(o.Dir); errors.Is(err, fs.ErrNotExist) {
		return o, fault.New(fault.NotFound, "there is no dev directory "+o.Dir, "Run `reeve dev up --dir "+o.Dir+"` to make a cluster there.")
	} else if err != nil {
		return o, fault.Wrap(fault.Refused, err, "the dev directory cannot be used", "Run reeve as the user who made it.")
	}
	return o, nil
}
