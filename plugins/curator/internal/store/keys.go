package store

import (
	"strings"

	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// Format is the version of the layout of the keys that this package reads and writes.
const Format = 1

const (
	keyCluster      = "cluster"
	keyCertificates = "authority/certificates"
	keySigningKey   = "authority/key"
	keyEpoch        = "epoch"
	keyDesired      = consensusv1.DesiredStateKey

	prefixNodes      = "nodes/"
	prefixPlugins    = "plugins/"
	prefixStatus     = "status/"
	prefixHeartbeats = "heartbeat/"
)

func nodeKey(id string) string      { return prefixNodes + id }
func pluginKey(name string) string  { return prefixPlugins + name }
func statusKey(id string) string    { return prefixStatus + id }
func heartbeatKey(id string) string { return prefixHeartbeats + id }

// split cuts a key into the prefix of its kind and the name below it. Keys of a single record have no name.
func split(key string) (kind, name string) {
	for _, prefix := range []string{prefixNodes, prefixPlugins, prefixStatus, prefixHeartbeats} {
		if rest, ok := strings.CutPrefix(key, prefix); ok {
			return prefix, rest
		}
	}
	return key, ""
}
