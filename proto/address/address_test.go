package address_test

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/proto/address"
)

// machine is a machine as cases have it: interfaces by number.
type machine struct{ address.Facts }

func (m *machine) link(name, kind string, change ...func(*address.Link)) int {
	link := address.Link{Index: len(m.Links) + 1, Name: name, Kind: kind, Up: true, Carrier: true}
	for _, each := range change {
		each(&link)
	}
	m.Links = append(m.Links, link)
	return link.Index
}

func (m *machine) holds(link int, prefixes ...string) {
	for _, prefix := range prefixes {
		m.Addresses = append(m.Addresses, address.Held{Prefix: netip.MustParsePrefix(prefix), Link: link})
	}
}

func (m *machine) routes(link int, metric uint32) {
	m.Defaults = append(m.Defaults, address.Default{Link: link, Metric: metric})
}

func loopback(l *address.Link)  { l.Loopback = true }
func noCarrier(l *address.Link) { l.Carrier = false }
func isDown(l *address.Link)    { l.Up, l.Carrier = false, false }
func portOf(master int) func(*address.Link) {
	return func(l *address.Link) { l.Master = master }
}

func TestChoose(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name  string
		build func(*machine)
		named []string
		want  []string
		// reasons are parts of why others are not chosen, by their addresses.
		reasons map[string]string
	}{
		{"one interface", func(m *machine) {
			m.holds(m.link("lo", "", loopback), "127.0.0.1/8", "::1/128", "192.0.2.99/32")
			eth := m.link("eth0", "")
			m.holds(eth, "10.77.0.1/24", "fe80::1/64", "2001:db8::1/64", "169.254.1.1/16")
			m.routes(eth, 100)
		}, nil, []string{"10.77.0.1", "2001:db8::1"}, map[string]string{
			"127.0.0.1": "only this machine", "::1": "only this machine", "fe80::1": "link-local", "169.254.1.1": "link-local", "192.0.2.99": "loopback interface",
		}},
		{"a virtual address", func(m *machine) {
			eth := m.link("eth0", "")
			m.holds(eth, "10.0.0.2/32", "10.77.0.1/24")
			m.routes(eth, 0)
		}, nil, []string{"10.77.0.1", "10.0.0.2"}, nil},
		{"a secondary address", func(m *machine) {
			eth := m.link("eth0", "")
			m.Addresses = append(m.Addresses, address.Held{Prefix: netip.MustParsePrefix("10.77.0.1/24"), Link: eth, Secondary: true})
			m.holds(eth, "10.77.0.9/24")
			m.routes(eth, 0)
		}, nil, []string{"10.77.0.9", "10.77.0.1"}, nil},
		{"a machine with nothing but a single address, as clouds have them", func(m *machine) {
			eth := m.link("eth0", "")
			m.holds(eth, "10.128.0.2/32")
			m.routes(eth, 100)
		}, nil, []string{"10.128.0.2"}, nil},
		{"addresses that do not stay", func(m *machine) {
			eth := m.link("eth0", "")
			m.holds(eth, "2001:db8::9/64")
			for prefix, passing := range map[string]string{"2001:db8::1/64": "temporary", "2001:db8::2/64": "deprecated"} {
				m.Addresses = append(m.Addresses, address.Held{Prefix: netip.MustParsePrefix(prefix), Link: eth, Passing: passing})
			}
			m.routes(eth, 0)
		}, nil, []string{"2001:db8::9"}, map[string]string{"2001:db8::1": "temporary", "2001:db8::2": "deprecated"}},
		{"containers", func(m *machine) {
			m.holds(m.link("docker0", "bridge", noCarrier), "172.17.0.1/16")
			m.holds(m.link("br-1", "bridge"), "172.18.0.1/16")
			m.holds(m.link("cali1", "veth"), "10.244.1.1/32")
			eth := m.link("eth0", "")
			m.holds(eth, "192.0.2.7/24")
			m.routes(eth, 0)
		}, nil, []string{"192.0.2.7"}, map[string]string{"172.17.0.1": "no carrier", "172.18.0.1": "is a bridge", "10.244.1.1": "is a veth"}},
		{"containers before the machine has an address", func(m *machine) {
			m.holds(m.link("docker0", "bridge"), "172.17.0.1/16")
			m.link("eth0", "")
		}, nil, nil, map[string]string{"172.17.0.1": "is a bridge"}},
		{"containers while the machine's device is switched off", func(m *machine) {
			m.holds(m.link("docker0", "bridge"), "172.17.0.1/16")
			m.link("eth0", "", isDown)
		}, nil, nil, map[string]string{"172.17.0.1": "is a bridge"}},
		{"Open vSwitch, whose data path is never switched on", func(m *machine) {
			path := m.link("ovs-system", "openvswitch", isDown)
			m.link("eth0", "", portOf(path))
			m.holds(m.link("br-ex", "openvswitch"), "192.0.2.7/24")
		}, nil, []string{"192.0.2.7"}, nil},
		{"an overlay, and what has its address", func(m *machine) {
			m.holds(m.link("pods", "vxlan"), "10.244.0.1/32")
			eth := m.link("eth0", "")
			m.holds(eth, "192.0.2.7/24", "10.244.0.1/32")
			m.routes(eth, 0)
		}, nil, []string{"192.0.2.7"}, map[string]string{"10.244.0.1": "overlay"}},
		{"a bridge over the machine's device", func(m *machine) {
			bridge := m.link("br0", "bridge")
			m.link("eth0", "", portOf(bridge))
			m.holds(bridge, "192.0.2.7/24")
			m.holds(m.link("virbr0", "bridge"), "192.168.122.1/24")
		}, nil, []string{"192.0.2.7"}, map[string]string{"192.168.122.1": "is a bridge"}},
		{"a bridge with the default route", func(m *machine) {
			bridge := m.link("br0", "bridge")
			m.holds(bridge, "192.0.2.7/24")
			m.routes(bridge, 0)
		}, nil, []string{"192.0.2.7"}, nil},
		{"a container, whose interface is one end of a pair", func(m *machine) {
			eth := m.link("eth0", "veth")
			m.holds(eth, "172.17.0.2/16")
			m.routes(eth, 0)
		}, nil, []string{"172.17.0.2"}, nil},
		{"nothing but pairs, and no route", func(m *machine) {
			m.holds(m.link("eth0", "veth"), "10.1.0.2/24")
		}, nil, []string{"10.1.0.2"}, nil},
		{"a VPN that has every route", func(m *machine) {
			m.holds(m.link("eth0", ""), "192.0.2.7/24")
			wg := m.link("wg0", "wireguard")
			m.holds(wg, "10.9.0.2/24")
			m.routes(wg, 0)
		}, nil, []string{"192.0.2.7"}, map[string]string{"10.9.0.2": "a tunnel (wireguard)"}},
		{"two default routes", func(m *machine) {
			wlan, eth := m.link("wlan0", ""), m.link("eth0", "")
			m.holds(wlan, "192.0.2.7/24")
			m.holds(eth, "192.0.2.8/24")
			m.routes(wlan, 600)
			m.routes(eth, 100)
		}, nil, []string{"192.0.2.8", "192.0.2.7"}, nil},
		{"an interface without a default route", func(m *machine) {
			eth := m.link("eth0", "")
			m.holds(eth, "203.0.113.7/24")
			m.holds(m.link("eth1", ""), "10.0.0.7/24")
			m.routes(eth, 100)
		}, nil, []string{"203.0.113.7"}, map[string]string{"10.0.0.7": "no default route"}},
		{"the same, named", func(m *machine) {
			eth := m.link("eth0", "")
			m.holds(eth, "203.0.113.7/24")
			m.holds(m.link("eth1", ""), "10.0.0.7/24")
			m.routes(eth, 100)
		}, []string{"eth1"}, []string{"10.0.0.7"}, map[string]string{"203.0.113.7": "network.interfaces names neither"}},
		{"a network that is named, of a VPN", func(m *machine) {
			eth := m.link("eth0", "")
			m.holds(eth, "203.0.113.7/24")
			m.holds(m.link("wg0", "wireguard"), "10.9.0.2/24")
			m.routes(eth, 100)
		}, []string{"10.9.0.0/16", "eth7"}, []string{"10.9.0.2"}, nil},
		{"no route at all", func(m *machine) {
			m.holds(m.link("eth0", ""), "10.77.0.1/24")
			m.holds(m.link("br-1", "bridge"), "172.18.0.1/16")
		}, nil, []string{"10.77.0.1"}, map[string]string{"172.18.0.1": "is a bridge"}},
		{"an interface that is down", func(m *machine) {
			m.holds(m.link("eth0", "", isDown), "10.77.0.1/24")
			m.holds(m.link("eth1", ""), "10.78.0.1/24")
		}, nil, []string{"10.78.0.1"}, map[string]string{"10.77.0.1": "interface is down"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var m machine
			c.build(&m)
			for range 2 {
				list := address.Choose(m.Facts, c.named)
				if got := address.Chosen(list); !slices.Equal(got, c.want) {
					t.Errorf("chosen %v, want %v of %v", got, c.want, list)
				}
				for other, reason := range c.reasons {
					n := slices.IndexFunc(list, func(a address.Address) bool { return a.Addr().String() == other && a.Reason != "" })
					if n < 0 || !strings.Contains(list[n].Reason, reason) {
						t.Errorf("%s: want the reason %q in %v", other, reason, list)
					}
				}
				if len(list) != len(m.Addresses) {
					t.Errorf("%d of %d addresses are listed", len(list), len(m.Addresses))
				}
				slices.Reverse(m.Addresses)
			}
		})
	}
}

// What the kernel says here is what the standard library finds.
func TestHere(t *testing.T) {
	t.Parallel()
	list, err := address.Here(nil)
	if err != nil {
		t.Fatal(err)
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, each := range interfaces {
		held, err := each.Addrs()
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range held {
			if !slices.ContainsFunc(list, func(a address.Address) bool { return a.Interface == each.Name && a.Prefix.String() == one.String() }) {
				t.Errorf("%s of %s is not in %v", one, each.Name, list)
			}
		}
	}
}
