package main

import (
	"time"

	"github.com/reeveproject/reeve/plugins/consensus/internal/service"
	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/sdk/role"
)

// configuration is the role's. The members of one store should all have the same.
type configuration struct {
	// HeartbeatMilliseconds is how often the leader shows itself; about the round-trip time between members. Default 100.
	HeartbeatMilliseconds uint32 `json:"heartbeatMilliseconds"`
	// ElectionMilliseconds is after how long without a leader the others elect one. Default 1000.
	ElectionMilliseconds uint32 `json:"electionMilliseconds"`
	// QuotaBytes is how large the database may become, the reserve for the cluster API among it. Default 2 GiB.
	QuotaBytes int64 `json:"quotaBytes"`
	// PeerListen is where the member listens for the others, host:port. Default: all addresses, port 7445.
	PeerListen string `json:"peerListen"`
}

// The bounds that etcd sets, and a lowest heartbeat below which a busy machine loses its leader.
const (
	minHeartbeat = 5
	maxHeartbeat = 10_000
	minRatio     = 5 // heartbeats in an election time
	maxElection  = 50_000
)

const configurationSchema = `{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "heartbeatMilliseconds": {
      "description": "How often the leader of the store shows itself. About the round-trip time between the members.",
      "type": "integer", "minimum": 5, "maximum": 10000, "default": 100
    },
    "electionMilliseconds": {
      "description": "After how long without a leader the other members elect one. At least five heartbeats.",
      "type": "integer", "minimum": 25, "maximum": 50000, "default": 1000
    },
    "quotaBytes": {
      "description": "How large the database may become. A quarter of it, at most 256 MiB, is kept for the cluster API.",
      "type": "integer", "minimum": 16777216, "maximum": 8589934592, "default": 2147483648
    },
    "peerListen": {
      "description": "Where the member listens for the other members, host:port; they reach it there too. An empty host means all addresses, of which the others are told the node's first. Nothing listens while there is one member.",
      "type": "string", "default": ":7445"
    }
  }
}`

func parseConfiguration(document []byte) (configuration, error) {
	c := configuration{
		HeartbeatMilliseconds: uint32(store.DefaultHeartbeat.Milliseconds()),
		ElectionMilliseconds:  uint32(store.DefaultElection.Milliseconds()),
		QuotaBytes:            store.DefaultQuota,
	}
	if err := role.Decode(document, &c); err != nil {
		return c, err
	}
	problems := &role.ConfigurationError{}
	if c.HeartbeatMilliseconds < minHeartbeat {
		problems.Add("/heartbeatMilliseconds", "%d is too short; at least %d", c.HeartbeatMilliseconds, minHeartbeat)
	}
	if c.HeartbeatMilliseconds > maxHeartbeat {
		problems.Add("/heartbeatMilliseconds", "%d is too long; at most %d", c.HeartbeatMilliseconds, maxHeartbeat)
	}
	if c.ElectionMilliseconds > maxElection {
		problems.Add("/electionMilliseconds", "%d is too long; at most %d", c.ElectionMilliseconds, maxElection)
	}
	if uint64(c.ElectionMilliseconds) < minRatio*uint64(c.HeartbeatMilliseconds) {
		problems.Add("/electionMilliseconds", "%d is too short for a heartbeat of %d; at least %d times the heartbeat",
			c.ElectionMilliseconds, c.HeartbeatMilliseconds, minRatio)
	}
	if c.QuotaBytes < store.MinQuota {
		problems.Add("/quotaBytes", "%d is too small; at least %d", c.QuotaBytes, store.MinQuota)
	}
	if c.QuotaBytes > store.MaxQuota {
		problems.Add("/quotaBytes", "%d is too large; at most %d", c.QuotaBytes, store.MaxQuota)
	}
	if err := service.CheckPeerListen(c.PeerListen); err != nil {
		problems.Add("/peerListen", "%v", err)
	}
	return c, problems.Err()
}

func (c configuration) heartbeat() time.Duration {
	return time.Duration(c.HeartbeatMilliseconds) * time.Millisecond
}

func (c configuration) election() time.Duration {
	return time.Duration(c.ElectionMilliseconds) * time.Millisecond
}
