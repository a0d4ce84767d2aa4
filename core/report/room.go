package report

import (
	"context"
	"crypto/ed25519"
	"net"
	"net/netip"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/core/cluster"
	"github.com/reeveproject/reeve/core/identity"
	"github.com/reeveproject/reeve/core/membership"
	"github.com/reeveproject/reeve/core/roles"
	names "github.com/reeveproject/reeve/proto/identity"
	"github.com/reeveproject/reeve/proto/problem"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// Room publishes what others see of the node. The zero value is ready for use. Other rooms watch its values before it runs.
type Room struct {
	// Node is the report to the cluster.
	Node event.Value[*clusterv1.NodeStatus]
	// Status is the answer of the node's own API.
	Status event.Value[*nodev1.Status]
	// Directory is what roles see of the cluster.
	Directory event.Value[*hostv1.Directory]
	// Operators are those that the cluster names. HostOperators are the same for roles, with the owner.
	Operators     event.Value[[]*clusterv1.Operator]
	HostOperators event.Value[*hostv1.Operators]
}

// Sources is what the room reports.
type Sources struct {
	// Start is when the core started. Version is the core's, Volume the kind of the volume.
	Start           time.Time
	Version, Volume string
	// Lacking are the capabilities that the core lacks and goes on without.
	Lacking   []string
	Isolation clusterv1.Isolation
	// Missing is what this node cannot enforce of the sandbox that every role has.
	Missing []*clusterv1.Missing

	// APIAddress is where the node's own API listens.
	APIAddress *event.Value[string]
	Addresses  *event.Value[[]string]
	Instances  *event.Value[roles.Instances]
	Membership *event.Value[membership.Status]
	Identity   *event.Value[*identity.Identity]
	Curators   *event.Value[[]string]
	// LocalCurator is where this machine alone reaches the node's own curator.
	LocalCurator *event.Value[string]
	View         *event.Value[*cluster.View]
	Store        *event.Value[*consensusv1.StoreStatus]
	Storage      *event.Value[*clusterv1.StorageStatus]
	// APIProblem and those after it are what makes the node degraded.
	APIProblem, MetricsProblem, DiskProblem, NetworkProblem *event.Value[string]
}

// Run publishes until the context ends.
func (r *Room) Run(ctx context.Context, s Sources) {
	addresses, instances, memberships := s.Addresses.Watch(), s.Instances.Watch(), s.Membership.Watch()
	identities, curators, views, stores := s.Identity.Watch(), s.Curators.Watch(), s.View.Watch(), s.Store.Watch()
	local := s.LocalCurator.Watch()
	volumes, listening, unserved, unmeasured := s.Storage.Watch(), s.APIAddress.Watch(), s.APIProblem.Watch(), s.MetricsProblem.Watch()
	unwritten, unreached := s.DiskProblem.Watch(), s.NetworkProblem.Watch()
	for {
		member, id := membershipOf(latest(memberships)), latest(identities)
		report := &clusterv1.NodeStatus{
			NodeId: member.GetNodeId(), Membership: member, Addresses: latest(addresses), Isolation: s.Isolation, Volume: s.Volume, Version: s.Version,
			Missing: s.Missing, Storage: latest(volumes), CaPins: membership.Pins(id.CA), Problem: both(both(latest(unwritten), latest(unreached)), both(latest(unserved), latest(unmeasured))),
		}
		report.ApiAddress = reached(latest(listening), report.GetAddresses())
		for _, instance := range latest(instances) {
			report.Instances = append(report.Instances, instance.Status)
		}
		report = r.publish(report)
		status := statusOf(s.Start, report, id, latest(curators), storeOf(latest(stores), latest(instances)))
		status.Cluster.LocalCurator = latest(local)
		status.LackingCapabilities = s.Lacking
		r.Status.Set(status)
		r.publishView(latest(views), id.Owner)
		select {
		case <-ctx.Done():
			return
		case <-addresses.Changed():
		case <-instances.Changed():
		case <-memberships.Changed():
		case <-identities.Changed():
		case <-curators.Changed():
		case <-local.Changed():
		case <-views.Changed():
		case <-stores.Changed():
		case <-volumes.Changed():
		case <-listening.Changed():
		case <-unserved.Changed():
		case <-unmeasured.Changed():
		case <-unwritten.Changed():
		case <-unreached.Changed():
		}
	}
}

// storeOf is the store's status, with what the role that provides it says if the store itself says nothing.
func storeOf(store *consensusv1.StoreStatus, instances roles.Instances) *consensusv1.StoreStatus {
	for _, instance := range instances {
		if slices.Contains(instance.Provides, roles.CapabilityConsensus) {
			return problem.OfStore(store, instance.Status)
		}
	}
	return store
}

// StoreAway says that the store has no majority of its members; "": it has one, or this node has no member that was formed.
func StoreAway(of *event.Value[*consensusv1.StoreStatus]) string {
	if store, _ := of.Get(); store.GetFormed() && !store.GetQuorum() {
		return "the consensus store has no majority: " + store.GetProblem()
	}
	return ""
}

// both is two problems as one, of which there may be none.
func both(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// latest returns the present value, or the zero value if there is none yet.
func latest[T any](watcher *event.Watcher[T]) T {
	value, _ := watcher.Latest()
	return value
}

// publish publishes a report with the present time, and returns it. A report that says the same as the last one is not published again: publish returns the
// last one.
func (r *Room) publish(report *clusterv1.NodeStatus) *clusterv1.NodeStatus {
	last, _ := r.Node.Get()
	report.Reported = last.GetReported()
	if last != nil && proto.Equal(last, report) {
		return last
	}
	report.Reported = timestamppb.Now()
	r.Node.Set(report)
	return report
}

// publishView publishes what is new of what the cluster says. Roles are told of no operators before the cluster has named them: they would turn
// operators away.
func (r *Room) publishView(view *cluster.View, owner ed25519.PublicKey) {
	if view == nil {
		return
	}
	if last, _ := r.Directory.Get(); view.Directory != nil && !proto.Equal(last, view.Directory) {
		r.Directory.Set(view.Directory)
	}
	same := func(a, b *clusterv1.Operator) bool { return proto.Equal(a, b) }
	if last, known := r.Operators.Get(); !known || !slices.EqualFunc(last, view.Operators, same) {
		r.Operators.Set(view.Operators)
	}
	told := &hostv1.Operators{}
	if len(owner) > 0 {
		told.OwnerKeyId = names.OwnerKeyID(owner)
	}
	for _, operator := range view.Operators {
		told.Operators = append(told.Operators, &hostv1.Operator{Name: operator.GetName(), Id: operator.GetId(), Role: hostv1.OperatorRole(operator.GetRole())})
	}
	if last, _ := r.HostOperators.Get(); last == nil || !proto.Equal(last, told) {
		r.HostOperators.Set(told)
	}
}

func membershipOf(status membership.Status) *hostv1.Membership {
	return &hostv1.Membership{
		State: status.State, Reason: status.Reason, Since: timestamppb.New(status.Since), NodeId: status.NodeID, ClusterId: status.ClusterID,
		TrustDomain: status.TrustDomain,
	}
}

// reached returns the address at which others reach a listener: for 0.0.0.0 the node's first IPv4 address, for :: its first address.
func reached(listening string, addresses []string) string {
	host, port, err := net.SplitHostPort(listening)
	if err != nil {
		return listening
	}
	everywhere, err := netip.ParseAddr(host)
	if err != nil || !everywhere.IsUnspecified() {
		return listening
	}
	for _, address := range addresses {
		if ip, err := netip.ParseAddr(address); everywhere.Is4() && err == nil && !ip.Unmap().Is4() {
			continue
		}
		return net.JoinHostPort(address, port)
	}
	return ""
}

func statusOf(start time.Time, report *clusterv1.NodeStatus, id *identity.Identity, curators []string, store *consensusv1.StoreStatus) *nodev1.Status {
	access := &nodev1.ClusterAccess{ClusterId: id.ClusterID, Curators: curators}
	for _, ca := range id.CA {
		access.CaCertificates = append(access.CaCertificates, ca.Raw)
	}
	public, _ := id.Key.Public().(ed25519.PublicKey)
	return &nodev1.Status{
		NodeId: report.GetNodeId(), Membership: report.GetMembership(), PublicKey: public,
		Node: report, Cluster: access, CoreStart: start.UnixNano(), Store: store, Storage: report.GetStorage(),
	}
}
