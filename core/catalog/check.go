package catalog

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"io"

	"github.com/reeveproject/reeve/core/genesis"
	"github.com/reeveproject/reeve/core/plugin/store"
	"github.com/reeveproject/reeve/proto/plainfile"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// CheckBuiltin returns what a node that makes a cluster by these parameters would refuse of its built-in plugins, and changes nothing. Without a genesis catalog they are not asked.
func CheckBuiltin(parameters *nodev1.Parameters) (problems []error) {
	var built *nodev1.Genesis
	if path := parameters.GetGenesis(); path != "" {
		var err error
		if built, err = genesis.Load(path); err != nil {
			return []error{fmt.Errorf("catalog: the genesis catalog (genesis in the parameters): %w", err)}
		}
	}
	for _, builtin := range parameters.GetPlugins() {
		if err := checkBuiltin(builtin.GetPath(), built); err != nil {
			problems = append(problems, fmt.Errorf("catalog: the built-in plugin %s (plugins[].path in the parameters): %w", builtin.GetPath(), err))
		}
	}
	return problems
}

func checkBuiltin(path string, built *nodev1.Genesis) error {
	executable, err := plainfile.Open(path)
	if err != nil {
		return err
	}
	defer executable.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, executable); err != nil {
		return err
	}
	if built == nil {
		return nil
	}
	digest := fmt.Sprintf("sha256:%x", hash.Sum(nil))
	if genesis.Record(built, digest) == nil {
		return unknownDigest(digest, built)
	}
	return nil
}

// unknownDigest says that a genesis catalog does not know an executable.
func unknownDigest(digest string, built *nodev1.Genesis) error {
	return fmt.Errorf("its digest is %s, and the genesis catalog knows for %s only %s with other digests: the file was changed after it was built; build both again, or take `genesis` out of the parameters to have the plugin asked",
		digest, store.Platform, cmp.Or(genesis.Names(built), "nothing"))
}
