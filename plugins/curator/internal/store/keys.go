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
	keyPolicy       = "policy"
	keyWiped        = "wiped"
	keyDesired      = consensusv1.DesiredStateKey
	keyStoreState   = consensusv1.StoreStateKey
	keyGeneration   = consensusv1.StoreGenerationKey
	keyNextKey      = "authority/next"
	keyElection     = "steward"
	keySnapshotTask = "snapshot-task"

	prefixNodes      = "nodes/"
	prefixPlugins    = "plugins/"
	prefixOperators  = "operators/"
	prefixStatus     = "status/"
	prefixHeartbeats = "heartbeat/"
	prefixIssued     = "issued/"
	prefixTickets    = "tickets/"
	// prefixSnapshots is for what each node has of scheduled snapshots.
	prefixSnapshots = "snapshots/"

	// prefixIncarnations is for the start of each node's core that is taken for the node, prefixRefused for the one that was refused last.
	prefixIncarnations = "incarnations/"
	prefixRefused      = "refused/"

	// prefixUnlock is for the cluster's halves of the keys of volumes (CUK), and afterUnlock is where the keys behind them begin: whoever reads the state of the
	// cluster leaves them out.
	prefixUnlock = "cuk/"
	afterUnlock  = "cuk0"

	// prefixReports and prefixAudit come before every other key, and firstRecord is where the others begin: the audit log is as large as all else and grows with every
	// call, and signed reports are large and seldom asked for, so whoever reads or watches the state of the cluster begins behind them.
	prefixReports = "attestations/"
	prefixAudit   = "audit/"
	firstRecord   = "audit0"
)

func nodeKey(id string) string       { return prefixNodes + id }
func pluginKey(name string) string   { return prefixPlugins + name }
func operatorKey(name string) string { return prefixOperators + name }
func statusKey(id string) string     { return prefixStatus + id }
func snapshotsKey(id string) string  { return prefixSnapshots + id }
func heartbeatKey(id string) string  { return prefixHeartbeats + id }

func ticketKey(id string) string        { return prefixTickets + id }
func unlockKey(node string) string      { return prefixUnlock + node }
func incarnationKey(node string) string { return prefixIncarnations + node }
func refusedKey(node string) string     { return prefixRefused + node }

// reportKey is where the signed report on an executable of a plugin is.
func reportKey(plugin, digest string) string { return prefixReports + plugin + "/" + digest }

// split cuts a key into the prefix of its kind and the name below it. Keys of a single record have no name.
func split(key string) (kind, name string) {
	for _, prefix := range []string{prefixNodes, prefixPlugins, prefixOperators, prefixStatus, prefixHeartbeats, prefixTickets, prefixIncarnations, prefixRefused, prefixSnapshots} {
		if rest, ok := strings.CutPrefix(key, prefix); ok {
			return prefix, rest
		}
	}
	return key, ""
}
