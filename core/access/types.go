package access

import (
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// States are the answers of OpenConsensus by instance ID, for running instances whose role declares a ConsensusUser. A published answer never
// changes.
type States map[string]*hostv1.OpenConsensusResponse
