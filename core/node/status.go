package node

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
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
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// reporter puts together what others see of the node: the report to the cluster, the answer of the node's own API, and the directory that
// roles watch.
type reporter struct {
	start      time.Time
	version    string
	volume     string
	isolation  clusterv1.Isolation
	apiAddress string
	// missing is what this node cannot enforce of the sandbox that every role has.
	missing []*clusterv1.Missing

	addresses  *event.Value[[]string]
	instances  *event.Value[roles.Instances]
	membership *event.Value[membership.Status]
	identity   *event.Value[*identity.Identity]
	curators   *event.Value[[]string]
	view       *event.Value[*cluster.View]
	store      *event.Value[*consensusv1.StoreStatus]
	storage    *event.Value[*clusterv1.StorageStatus]
	problem    *event.Value[string]

	node      *event.Value[*clusterv1.NodeStatus]
	full      *event.Value[*nodev1.Status]
	directory *event.Value[*hostv1.Directory]
}

func (r reporter) run(ctx context.Context) error {
	addresses, instances, memberships := r.addresses.Watch(), r.instances.Watch(), r.membership.Watch()
	identities, curators, views, stores := r.identity.Watch(), r.curators.Watch(), r.view.Watch(), r.store.Watch()
	volumes, problems := r.storage.Watch(), r.problem.Watch()
	for {
		status := latest(memberships)
		member := membershipOf(status)
		id := latest(identities)
		report := r.report(member, latest(addresses), latest(instances), latest(volumes), pinsOf(id))
		report.Problem = latest(problems)
		last, _ := r.node.Get()
		if last == nil || !sameReport(last, report) {
			r.node.Set(report)
		} else {
			report = last
		}
		r.full.Set(r.describe(member, report, id, latest(curators), latest(stores)))
		if view := latest(views); view != nil && view.Directory != nil {
			if known, _ := r.directory.Get(); !proto.Equal(known, view.Directory) {
				r.directory.Set(view.Directory)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-addresses.Changed():
		case <-instances.Changed():
		case <-memberships.Changed():
		case <-identities.Changed():
		case <-curators.Changed():
		case <-views.Changed():
		case <-stores.Changed():
		case <-volumes.Changed():
		case <-problems.Changed():
		}
	}
}

// membershipOf is the node's membership as others read it.
func membershipOf(status membership.Status) *hostv1.Membership {
	return &hostv1.Membership{
		State: status.State, Reason: status.Reason, Since: timestamppb.New(status.Since), NodeId: status.NodeID, ClusterId: status.ClusterID,
		TrustDomain: status.TrustDomain,
	}
}

func (r reporter) report(member *hostv1.Membership, addresses []string, instances roles.Instances, storage *clusterv1.StorageStatus, pins [][]byte) *clusterv1.NodeStatus {
	report := &clusterv1.NodeStatus{
		NodeId: member.GetNodeId(), Membership: member, Addresses: addresses, ApiAddress: reached(r.apiAddress, addresses), Isolation: r.isolation, Volume: r.volume, Version: r.version,
		Reported: timestamppb.Now(), Missing: r.missing, Storage: storage, CaPins: pins,
	}
	for _, instance := range instances {
		report.Instances = append(report.Instances, instance.Status)
	}
	return report
}

// reached is the address at which others reach a listener: for 0.0.0.0 the node's first IPv4 address, for :: its first address.
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

// pinsOf tells by what certificates of the CA the node knows its cluster: a new CA signs only when every node does.
func pinsOf(id *identity.Identity) [][]byte {
	var pins [][]byte
	for _, certificate := range id.CA {
		pin := sha256.Sum256(certificate.RawSubjectPublicKeyInfo)
		pins = append(pins, pin[:])
	}
	slices.SortFunc(pins, bytes.Compare)
	return pins
}

// sameReport compares reports without their time, so that nothing is reported again just because time has passed.
func sameReport(a, b *clusterv1.NodeStatus) bool {
	return a.GetNodeId() == b.GetNodeId() && a.GetProblem() == b.GetProblem() && slices.Equal(a.GetAddresses(), b.GetAddresses()) && proto.Equal(a.GetStorage(), b.GetStorage()) &&
		proto.Equal(a.GetMembership(), b.GetMembership()) && slices.EqualFunc(a.GetCaPins(), b.GetCaPins(), bytes.Equal) &&
		slices.EqualFunc(a.GetInstances(), b.GetInstances(), func(x, y *clusterv1.InstanceStatus) bool { return proto.Equal(x, y) })
}

func (r reporter) describe(member *hostv1.Membership, report *clusterv1.NodeStatus, id *identity.Identity, curators []string, store *consensusv1.StoreStatus) *nodev1.Status {
	access := &nodev1.ClusterAccess{ClusterId: id.ClusterID, Curators: curators}
	for _, ca := range id.CA {
		access.CaCertificates = append(access.CaCertificates, ca.Raw)
	}
	public, _ := id.Key.Public().(ed25519.PublicKey)
	return &nodev1.Status{
		NodeId: member.GetNodeId(), Membership: member, PublicKey: public,
		Node: report, Cluster: access, CoreStart: r.start.UnixNano(), Store: store, Storage: report.GetStorage(),
	}
}
