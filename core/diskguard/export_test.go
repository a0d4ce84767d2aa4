package diskguard

import (
	"context"

	"github.com/reeveproject/reeve/core/storage"
)

// Look does once what Run does again and again.
func (g *Guard) Look(ctx context.Context) { g.look(ctx) }

// Write is the write that a Prober tries.
var Write = storage.Probe

// PlentyOfFiles and MostFilesReserved are the package's own bounds.
const (
	PlentyOfFiles     = plentyOfFiles
	MostFilesReserved = mostFilesReserved
)
