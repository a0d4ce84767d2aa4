package cluster

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/reeveproject/reeve/core/identity"
	"github.com/reeveproject/reeve/core/roles"
	"github.com/reeveproject/reeve/core/spread"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// endpointName is the name under which an instance that provides the cluster API publishes where it serves it.
const endpointName = roles.CapabilityCluster

// localName is the name under which such an instance publishes where its own machine reaches it, whatever addresses the machine has.
const localName = endpointName + "/local"

// target is one way to a curator. Two that are equal are served by one connection; any difference needs another.
type target struct {
	// address is host:port; instance and role say who serves there.
	address, instance, role string
	// own says that it is the curator of this node, ready that it says of itself that it is.
	own, ready bool
	// nodeID, trustDomain, ca and svid are the identity that the connection's handshake depends on; the last two as raw bytes.
	nodeID, trustDomain, ca, svid string
}

// way is where Run is heading, for the judge of contact.
type way struct {
	to target
	// missing says why there is nowhere to go; empty: there is.
	missing string
	since   time.Time
	// failed is what came of the curators that were tried one after the other, as long as none of them works; empty: there is no more than one, or it works.
	failed string
}

// known is what the node knows of curators.
type known struct {
	node     *identity.Identity
	provided roles.Capabilities
	view     *View
	// kept are the addresses from earlier.
	kept []string
	// nameless says that the incarnation of this start of the core is not known yet, without which nobody is called.
	nameless bool
}

// candidates returns the ways to curators, the best first: that of this node, if it is ready; those of the directory, on nodes that live first; that of this node
// all the same; those from earlier. Within each of these nodes spread over them. If there is none, it says what is missing for there to be one.
func candidates(k known) (list []target, missing string) {
	switch {
	case k.node == nil || len(k.node.Key) == 0:
		return nil, "the node has no key yet"
	case k.node.TrustDomain == "" || len(k.node.CA) == 0:
		return nil, "the node does not know the certificates of its cluster's CA yet"
	case k.nameless:
		return nil, "the number of this start of the core is not kept yet"
	}
	own, missing := ownCurator(k)
	add := func(to target) {
		if !slices.ContainsFunc(list, func(t target) bool { return t.address == to.address }) {
			list = append(list, to)
		}
	}
	if missing == "" && own.ready {
		add(own)
	}
	for _, healthy := range []bool{true, false} {
		nodes := make(map[string]string)
		for _, r := range remoteCurators(k.view) {
			if r.healthy == healthy {
				nodes[r.address] = r.nodeID
			}
		}
		for _, address := range spread.Order(k.node.NodeID, slices.Collect(maps.Keys(nodes))) {
			add(k.target(address, "the curator of node "+nodes[address], ""))
		}
	}
	if missing == "" {
		add(own)
	}
	for _, address := range spread.Order(k.node.NodeID, k.kept) {
		add(k.target(address, "the curator", ""))
	}
	if len(list) > 0 {
		return list, ""
	}
	return nil, missing
}

// ownCurator returns the way to the curator of this node, or what is missing for there to be one.
func ownCurator(k known) (to target, missing string) {
	provider, ok := k.provided[roles.CapabilityCluster]
	if !ok {
		return target{}, fmt.Sprintf("no role that runs on this node provides %s", roles.CapabilityCluster)
	}
	published, ok := local(provider.Endpoints), true
	if published == "" {
		published, ok = endpoint(provider.Endpoints)
	}
	if !ok {
		return target{}, fmt.Sprintf("%s, which provides %s, has not published its endpoint yet", provider.InstanceID, roles.CapabilityCluster)
	}
	address, err := hostPort(published)
	if err != nil {
		return target{}, fmt.Sprintf("%s published the endpoint %q, which is no host:port: %v", provider.InstanceID, published, err)
	}
	to = k.target(address, provider.InstanceID, provider.Role)
	to.own, to.ready = true, provider.State == hostv1.InstanceState_INSTANCE_STATE_READY
	return to, ""
}

// target is a way with the identity that its handshake depends on.
func (k known) target(address, instance, role string) target {
	to := target{address: address, instance: instance, role: role, nodeID: k.node.NodeID, trustDomain: k.node.TrustDomain}
	var ca strings.Builder
	for _, certificate := range k.node.CA {
		ca.Write(certificate.Raw)
	}
	to.ca = ca.String()
	if k.node.SVID != nil && len(k.node.SVID.Certificate) > 0 {
		to.svid = string(k.node.SVID.Certificate[0])
	}
	return to
}

// same says whether another target is the same curator, reached as the same node.
func (t target) same(other target) bool {
	t.ready, other.ready = false, false
	if !t.own && !other.own {
		// By the directory or from earlier: who is said to be there changes nothing.
		t.instance, other.instance = "", ""
	}
	return t == other
}

// sameIdentity says whether another target is reached as the same node.
func (t target) sameIdentity(other target) bool {
	return t.nodeID == other.nodeID && t.trustDomain == other.trustDomain && t.ca == other.ca && t.svid == other.svid
}

// remote is a curator on another node, by the directory.
type remote struct {
	// address is host:port.
	address, nodeID string
	healthy         bool
}

// remoteCurators returns the curators on other nodes by the directory, sorted by node ID. It leaves out what the directory says of this very node, which is older
// than what the node itself knows.
func remoteCurators(view *View) (list []remote) {
	if view == nil {
		return nil
	}
	for _, node := range view.Directory.GetNodes() {
		if node.GetNodeId() == view.Node.GetId() {
			continue
		}
		for _, role := range node.GetRoles() {
			published, _ := endpoint(role.GetEndpoints())
			address, err := hostPort(published)
			if err == nil && !slices.ContainsFunc(list, func(r remote) bool { return r.address == address }) {
				list = append(list, remote{address, node.GetNodeId(), node.GetHealthy()})
			}
		}
	}
	return list
}

func endpoint(endpoints []*rolev1.Endpoint) (address string, ok bool) {
	for _, e := range endpoints {
		if e.GetName() == endpointName {
			return e.GetAddress(), e.GetAddress() != ""
		}
	}
	return "", false
}

// local is where an instance is reached by its own machine only; empty: it has said nothing of the kind.
func local(endpoints []*rolev1.Endpoint) string {
	for _, e := range endpoints {
		if address, err := netip.ParseAddrPort(e.GetAddress()); e.GetName() == localName && err == nil && address.Addr().IsLoopback() {
			return e.GetAddress()
		}
	}
	return ""
}

// hostPort returns the host:port of an endpoint, which is one or a URL.
func hostPort(address string) (string, error) {
	if strings.Contains(address, "://") {
		u, err := url.Parse(address)
		if err != nil {
			return "", err
		}
		address = u.Host
	}
	if _, port, err := net.SplitHostPort(address); err != nil {
		return "", err
	} else if port == "" || port == "0" {
		return "", fmt.Errorf("no port")
	}
	return address, nil
}
