package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/reeveproject/reeve/core/identity"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// reserved is what the names of the node's metrics begin with. No role can have one that does.
const reserved = "reeve_"

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(reserved+name, help, labels, nil)
}

// The node and its store.
var (
	nodeInfo        = describe("node_info", "What the node is; always 1.", "node", "cluster", "version", "isolation", "volume")
	svidEnds        = describe("node_svid_not_after_seconds", "When the node's SVID ends, in seconds of the Unix epoch; absent: it has none.")
	nodeProblem     = describe("node_problem", "Whether something degrades the node, such as a volume that takes no writes; the node's status says what.")
	membershipState = describe("membership_state", "The node's membership of its cluster: 1 for the state that it is in, 0 for the others.", "state")

	storeSize     = describe("store_database_size_bytes", "Size on disk of the local member's database.")
	storeInUse    = describe("store_database_in_use_bytes", "How much of the local member's database is in use: what defragmenting would leave.")
	storeQuota    = describe("store_quota_bytes", "How large the local member's database may become, the reserve for the cluster API among it.")
	storeChanges  = describe("store_leader_changes_total", "How often the local member has seen the store's leader change since its process started.")
	storeLeader   = describe("store_has_leader", "Whether the local member knows a leader of the store.")
	storeQuorum   = describe("store_quorum", "Whether the store has a leader and makes progress.")
	storeVoter    = describe("store_voter", "Whether the local member votes.")
	storeMembers  = describe("store_members", "Members of the store.", "kind")
	storeProblem  = describe("store_problem", "Whether something keeps the store from its work, such as a lack of room, or endangers it, such as a member that does not answer; the node's status says what.")
	nodeMissing   = describe("node_sandbox_missing", "What this node cannot enforce of the sandboxes of its roles; always 1.", "part")
	userBytes     = describe("store_user_bytes", "Bytes of the keys and values that a ConsensusUser has in the store.", "user")
	userQuota     = describe("store_user_bytes_quota", "How many of them it may have; absent: as many as fit.", "user")
	userLeases    = describe("store_user_leases", "Leases that a ConsensusUser has in the store.", "user")
	leasesQuota   = describe("store_user_leases_quota", "How many of them it may have; absent: as many as it wants.", "user")
	userRefused   = describe("store_user_refused_total", "How many requests of a ConsensusUser were refused since it had used up what it may, since the local member's process started.", "user")
	storeDamaged  = describe("store_damaged_members", "Members of the store whose data is damaged, or differs from that of others; the node's status names them.")
	storeKinds    = []string{"learner", "voter"}
	statesOfNode  = namesOf(hostv1.MembershipState_name, "MEMBERSHIP_STATE_")
	statesOfRoles = namesOf(hostv1.InstanceState_name, "INSTANCE_STATE_")
)

// nodeCollector shows the node's status, and who it is.
type nodeCollector struct {
	status   *event.Value[*nodev1.Status]
	identity *event.Value[*identity.Identity] // nil: it is not shown
}

// Describe implements prometheus.Collector. What is shown depends on what the node has, and is checked when it is gathered.
func (nodeCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c nodeCollector) Collect(to chan<- prometheus.Metric) {
	if c.identity != nil {
		if id, _ := c.identity.Get(); id != nil && id.SVID != nil && id.SVID.Leaf != nil {
			to <- gauge(svidEnds, float64(id.SVID.Leaf.NotAfter.Unix()))
		}
	}
	status, _ := c.status.Get()
	if status == nil {
		return
	}
	node := status.GetNode()
	to <- gauge(nodeInfo, 1, status.GetNodeId(), status.GetMembership().GetClusterId(), node.GetVersion(),
		strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(node.GetIsolation().String(), "ISOLATION_")), "_", "-"), node.GetVolume())
	to <- gauge(nodeProblem, truth(node.GetProblem() != ""))
	for number, name := range statesOfNode {
		to <- gauge(membershipState, truth(hostv1.MembershipState(number) == status.GetMembership().GetState()), name)
	}
	for _, missing := range node.GetMissing() {
		to <- gauge(nodeMissing, 1, valid(missing.GetName()))
	}
	if store := status.GetStore(); store.GetFormed() {
		collectStore(to, store)
	}
}

func collectStore(to chan<- prometheus.Metric, store *consensusv1.StoreStatus) {
	to <- gauge(storeSize, float64(store.GetDatabaseSize()))
	to <- gauge(storeInUse, float64(store.GetDatabaseInUse()))
	to <- gauge(storeQuota, float64(store.GetQuota()))
	to <- prometheus.MustNewConstMetric(storeChanges, prometheus.CounterValue, float64(store.GetLeaderChanges()))
	to <- gauge(storeLeader, truth(store.GetLeaderId() != ""))
	to <- gauge(storeQuorum, truth(store.GetQuorum()))
	to <- gauge(storeVoter, truth(store.GetVoter()))
	to <- gauge(storeProblem, truth(store.GetProblem() != ""))
	collectUsers(to, store)
	members, damaged := make(map[string]int), 0
	for _, member := range store.GetMembers() {
		if member.GetDamage() != "" {
			damaged++
		}
		if member.GetLearner() {
			members["learner"]++
		} else {
			members["voter"]++
		}
	}
	to <- gauge(storeDamaged, float64(damaged))
	for _, kind := range storeKinds {
		to <- gauge(storeMembers, float64(members[kind]), kind)
	}
}

// collectUsers shows what the ConsensusUsers have. Of two entries for one user, which the store does not make, the first counts.
func collectUsers(to chan<- prometheus.Metric, store *consensusv1.StoreStatus) {
	seen := make(map[string]bool)
	for _, usage := range store.GetUsage() {
		user := valid(usage.GetConsensusUser())
		if seen[user] {
			continue
		}
		seen[user] = true
		to <- gauge(userBytes, float64(usage.GetBytes()), user)
		if quota := usage.GetBytesQuota(); quota > 0 {
			to <- gauge(userQuota, float64(quota), user)
		}
		to <- gauge(userLeases, float64(usage.GetLeases()), user)
		if quota := usage.GetLeasesQuota(); quota > 0 {
			to <- gauge(leasesQuota, float64(quota), user)
		}
		to <- prometheus.MustNewConstMetric(userRefused, prometheus.CounterValue, float64(usage.GetRefused()), user)
	}
}

func gauge(desc *prometheus.Desc, value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// namesOf returns the values of an enum as they are called in the status, Ready and not INSTANCE_STATE_READY, without the unspecified one.
func namesOf(names map[int32]string, prefix string) map[int32]string {
	short := make(map[int32]string)
	for number, name := range names {
		if number != 0 {
			name = strings.ToLower(strings.TrimPrefix(name, prefix))
			short[number] = strings.ToUpper(name[:1]) + name[1:]
		}
	}
	return short
}
