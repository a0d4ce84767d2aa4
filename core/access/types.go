package access

import (
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// States is what OpenConsensus answers to each running instance whose role declares a ConsensusUser: instance ID to answer. An answer is
// never changed after it was published.
type States map[string]*hostv1.OpenConsensusResponse
