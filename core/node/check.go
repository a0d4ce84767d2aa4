package node

import (
	"errors"
	"io/fs"
	"os"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/catalog"
	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/core/unseal"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// Check returns what Run would refuse of a node with these parameters before it does anything, as far as that can be told without changing anything. It may run beside the node.
func Check(parameters *nodev1.Parameters) (problems []error) {
	layout, err := unseal.LayoutOf(parameters)
	if err != nil {
		return []error{err}
	}
	problems = storage.Check(layout)
	if err := checkCapabilities(hclog.NewNullLogger()); err != nil {
		problems = append(problems, err)
	}
	// Once it has begun, the cluster's catalog counts, and not what was built.
	if _, err := os.Lstat(layout.Configuration()); parameters.GetBootstrap() != nil && errors.Is(err, fs.ErrNotExist) {
		problems = append(problems, catalog.CheckBuiltin(parameters)...)
	}
	return problems
}
