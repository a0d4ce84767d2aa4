package controller

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/reeveproject/reeve/sdk/role"
)

// Configuration is the role's configuration. It has to be the same on all nodes.
type Configuration struct {
	Port                       int             `json:"port" doc:"the TCP port of the API server" check:"min=1,max=65535"`
	ControllerManagerPort      int             `json:"controllerManagerPort" doc:"the TCP port of kube-controller-manager, for its health" check:"min=1,max=65535"`
	SchedulerPort              int             `json:"schedulerPort" doc:"the TCP port of kube-scheduler, for its health" check:"min=1,max=65535"`
	ServiceCIDRs               []string        `json:"serviceCIDRs" doc:"from where services get their addresses: one range, or one of IPv4 and one of IPv6" check:"min=1,max=2"`
	PodCIDRs                   []string        `json:"podCIDRs" doc:"from where nodes get the ranges of their pods: one range, or one of IPv4 and one of IPv6" check:"min=1,max=2"`
	ClusterDomain              string          `json:"clusterDomain" doc:"the DNS domain of services and pods" check:"max=253" pattern:"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"`
	CoreDNS                    bool            `json:"coreDNS" doc:"whether the role makes CoreDNS, by which pods find services by name, and keeps it at the plugin's version"`
	ServerNames                []string        `json:"serverNames" doc:"further DNS names and addresses by which the API server is reached, such as those of a load balancer" check:"max=64"`
	FeatureGates               map[string]bool `json:"featureGates" doc:"feature gates of Kubernetes, for all of its programs"`
	APIServerArguments         []string        `json:"apiServerArguments" doc:"further arguments of kube-apiserver, --name=value each" check:"max=64"`
	ControllerManagerArguments []string        `json:"controllerManagerArguments" doc:"further arguments of kube-controller-manager, --name=value each" check:"max=64"`
	SchedulerArguments         []string        `json:"schedulerArguments" doc:"further arguments of kube-scheduler, --name=value each" check:"max=64"`
}

var configuration = role.Configure(func() *Configuration {
	return &Configuration{
		Port: 6443, ControllerManagerPort: 10257, SchedulerPort: 10259,
		ServiceCIDRs: []string{"10.96.0.0/16"}, PodCIDRs: []string{"10.244.0.0/16"}, ClusterDomain: "cluster.local", CoreDNS: true,
	}
}, func(c *Configuration, problems *role.ConfigurationError) { c.check(problems) })

func (c *Configuration) check(problems *role.ConfigurationError) {
	ports := map[int]string{}
	for _, port := range []struct {
		path   string
		number int
	}{{"/port", c.Port}, {"/controllerManagerPort", c.ControllerManagerPort}, {"/schedulerPort", c.SchedulerPort}} {
		if other := ports[port.number]; other != "" {
			problems.Add(port.path, "%d is the port of %s too", port.number, other)
		}
		ports[port.number] = port.path
	}
	services, pods := checkRanges(problems, "/serviceCIDRs", c.ServiceCIDRs, 12, 108), checkRanges(problems, "/podCIDRs", c.PodCIDRs, 8, 16)
	for _, service := range services {
		for n, pod := range pods {
			if service.Overlaps(pod) {
				problems.Add(fmt.Sprintf("/podCIDRs/%d", n), "%s and the range of services %s overlap", pod, service)
			}
		}
	}
	for n, name := range c.ServerNames {
		if _, err := netip.ParseAddr(name); err != nil && !dnsName(name) {
			problems.Add(fmt.Sprintf("/serverNames/%d", n), "%q is neither a DNS name nor an address", name)
		}
	}
	for name := range c.FeatureGates {
		if name == "" || strings.ContainsAny(name, ",= \n") {
			problems.Add("/featureGates", "%q is not the name of a feature gate", name)
		}
	}
	// What the role says itself it has to say: an argument that is given twice would mean the last one.
	own := place{address: "192.0.2.1", store: "/s", prefix: "/p", directory: "/d"}
	for path, list := range map[string][2][]string{
		"/apiServerArguments":         {c.APIServerArguments, c.ownAPIServer(own)},
		"/controllerManagerArguments": {c.ControllerManagerArguments, c.ownControllerManager(own)},
		"/schedulerArguments":         {c.SchedulerArguments, c.ownScheduler(own)},
	} {
		for n, argument := range list[0] {
			at := fmt.Sprintf("%s/%d", path, n)
			switch name, _, ok := strings.Cut(argument, "="); {
			case !ok || !strings.HasPrefix(name, "--") || len(name) < 3 || strings.ContainsAny(name, " \n"):
				problems.Add(at, "%q: want --name=value", argument)
			case slices.ContainsFunc(list[1], func(mine string) bool { return strings.HasPrefix(mine, name+"=") }) || name == "--feature-gates":
				problems.Add(at, "%s is set by the role itself", name)
			}
		}
	}
}

// checkRanges reads one range of addresses, or two of different kinds, of which each has room: at most so many bits of IPv4 and of IPv6 for the network.
func checkRanges(problems *role.ConfigurationError, path string, texts []string, least4, least6 int) []netip.Prefix {
	var ranges []netip.Prefix
	for n, text := range texts {
		at := fmt.Sprintf("%s/%d", path, n)
		prefix, err := netip.ParsePrefix(text)
		switch {
		case err != nil:
			problems.Add(at, "%q is not a range of addresses such as 10.96.0.0/16", text)
			continue
		case prefix != prefix.Masked():
			problems.Add(at, "%s is not the beginning of its range: %s is", text, prefix.Masked())
		case prefix.Addr().Is4() && (prefix.Bits() < least4 || prefix.Bits() > 24), prefix.Addr().Is6() && (prefix.Bits() < least6 || prefix.Bits() > 120):
			problems.Add(at, "%s is too large or too small: want a /%d to /24 of IPv4, or a /%d to /120 of IPv6", text, least4, least6)
		case len(ranges) == 1 && ranges[0].Addr().Is4() == prefix.Addr().Is4():
			problems.Add(at, "%s is of the same kind as %s: there may be one of IPv4 and one of IPv6", text, ranges[0])
		}
		ranges = append(ranges, prefix)
	}
	return ranges
}

func dnsName(name string) bool {
	if len(name) > 253 || name == "" {
		return false
	}
	for label := range strings.SplitSeq(strings.TrimPrefix(name, "*."), ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
	}
	return true
}

// checkGrants refuses to start where a program could not listen on its port.
func checkGrants(document []byte, grants []role.Grant) error {
	c, err := configuration.Decode(document)
	if err != nil {
		return err
	}
	problems := &role.ConfigurationError{}
	for path, port := range map[string]int{"/port": c.Port, "/controllerManagerPort": c.ControllerManagerPort, "/schedulerPort": c.SchedulerPort} {
		if !slices.ContainsFunc(grants, func(grant role.Grant) bool {
			of := grant.Parameters["port"]
			return grant.Name == "privileged" || grant.Name == "listen" && (of == role.AnyPort || of == strconv.Itoa(port))
		}) {
			problems.Add(path, "the role may not listen on port %d: have the cluster's owner grant it listen:port=%d", port, port)
		}
	}
	return problems.Err()
}

// serviceAddresses are the addresses of the API server's own service: the first of each range.
func (c *Configuration) serviceAddresses() []netip.Addr {
	var addresses []netip.Addr
	for _, text := range c.ServiceCIDRs {
		if prefix, err := netip.ParsePrefix(text); err == nil {
			addresses = append(addresses, prefix.Masked().Addr().Next())
		}
	}
	return addresses
}

// dnsAddresses are the addresses of the service by which pods find others by name: the tenth of each range. Kubernetes gives none of the lowest addresses to a service that asks for any.
func (c *Configuration) dnsAddresses() []netip.Addr {
	var addresses []netip.Addr
	for _, address := range c.serviceAddresses() {
		for range 9 {
			address = address.Next()
		}
		addresses = append(addresses, address)
	}
	return addresses
}

// gates are the feature gates as an argument; nothing if none is set.
func (c *Configuration) gates() []string {
	var gates []string
	for _, name := range slices.Sorted(maps.Keys(c.FeatureGates)) {
		gates = append(gates, name+"="+strconv.FormatBool(c.FeatureGates[name]))
	}
	if len(gates) == 0 {
		return nil
	}
	return []string{"--feature-gates=" + strings.Join(gates, ",")}
}
