package cluster

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/reeveproject/reeve/core/identity"
	"github.com/reeveproject/reeve/core/roles"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// endpointName is the name under which an instance that provides the cluster API publishes where it serves it.
const endpointName = roles.CapabilityCluster

// target is one way to a curator. Two that are equal are served by one connection; any difference needs another.
type target struct {
	// address is host:port; instance and role say who serves there.
	address, instance, role string
	// nodeID, trustDomain, ca and svid are the identity that the connection's handshake depends on; the last two as raw bytes.
	nodeID, trustDomain, ca, svid string
}

// way is where Run is heading, for the judge of contact.
type way struct {
	to target
	// missing says why there is nowhere to go; empty: there is.
	missing string
	since   time.Time
}

// locate returns the way to the curator, or what is missing for there to be one.
func locate(node *identity.Identity, provided roles.Capabilities) (to target, missing string) {
	if node == nil || len(node.Key) == 0 {
		return target{}, "the node has no key yet"
	}
	if node.TrustDomain == "" || len(node.CA) == 0 {
		return target{}, "the node does not know the certificates of its cluster's CA yet"
	}
	provider, ok := provided[roles.CapabilityCluster]
	if !ok {
		return target{}, fmt.Sprintf("no role that runs on this node provides %s", roles.CapabilityCluster)
	}
	published, ok := endpoint(provider.Endpoints)
	if !ok {
		return target{}, fmt.Sprintf("%s, which provides %s, has not published its endpoint yet", provider.InstanceID, roles.CapabilityCluster)
	}
	address, err := hostPort(published)
	if err != nil {
		return target{}, fmt.Sprintf("%s published the endpoint %q, which is no host:port: %v", provider.InstanceID, published, err)
	}
	to = target{
		address:     address,
		instance:    provider.InstanceID,
		role:        provider.Role,
		nodeID:      node.NodeID,
		trustDomain: node.TrustDomain,
	}
	var ca strings.Builder
	for _, certificate := range node.CA {
		ca.Write(certificate.Raw)
	}
	to.ca = ca.String()
	if node.SVID != nil && len(node.SVID.Certificate) > 0 {
		to.svid = string(node.SVID.Certificate[0])
	}
	return to, ""
}

func endpoint(endpoints []*rolev1.Endpoint) (address string, ok bool) {
	for _, e := range endpoints {
		if e.GetName() == endpointName {
			return e.GetAddress(), e.GetAddress() != ""
		}
	}
	return "", false
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

// listCurators publishes the curators' addresses until the context ends.
func (c *Client) listCurators(ctx context.Context) {
	capabilities, views := c.config.Capabilities.Watch(), c.view.Watch()
	var provided roles.Capabilities
	var view *View
	for {
		refresh(ctx, capabilities, &provided)
		refresh(ctx, views, &view)
		list := curators(provided, view)
		if before, ok := c.curators.Get(); !ok || !slices.Equal(before, list) {
			c.curators.Set(list)
		}
		select {
		case <-ctx.Done():
			return
		case <-capabilities.Changed():
		case <-views.Changed():
		}
	}
}

// curators lists the curators. What the directory says of this very node is left out: it is older than what the node itself knows.
func curators(provided roles.Capabilities, view *View) []string {
	var list []string
	add := func(endpoints []*rolev1.Endpoint) {
		if published, ok := endpoint(endpoints); ok {
			if address, err := hostPort(published); err == nil && !slices.Contains(list, address) {
				list = append(list, address)
			}
		}
	}
	add(provided[roles.CapabilityCluster].Endpoints)
	if view == nil {
		return list
	}
	for _, node := range view.Directory.GetNodes() {
		if node.GetNodeId() == view.Node.GetId() {
			continue
		}
		for _, role := range node.GetRoles() {
			add(role.GetEndpoints())
		}
	}
	return list
}
