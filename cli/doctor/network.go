package doctor

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/proto/address"
)

// addresses says by which addresses others reach the node, and why the others of the machine are not among them.
func (f Facts) addresses() output.Check {
	check := good("addresses", "")
	warn := func(consequence, advice string) output.Check {
		check.Level, check.Consequence, check.Advice = warning, consequence, advice
		return check
	}
	if f.AddressesErr != nil {
		check.Found = f.AddressesErr.Error()
		return warn("which addresses the node has cannot be said", "See why the kernel does not list them.")
	}
	if !address.ReachesItself(f.Addresses) {
		check.Found = "no loopback address of an interface that is up"
		return warn("what runs on this machine does not reach itself: the node does not reach its own curator", "Switch the loopback interface on: `ip link set lo up`.")
	}
	if given := f.Network.GetAddresses(); len(given) > 0 {
		check.Found = strings.Join(given, ", ") + ", as network.addresses says"
		for _, one := range given {
			if !slices.ContainsFunc(f.Addresses, func(a address.Address) bool { return a.Addr().String() == one }) {
				return warn("others are told "+one+", which is none of this machine's addresses",
					"Give the machine that address, unless it is one that leads to it from outside; or leave network.addresses out, and the node follows those that it has.")
			}
		}
		return check
	}
	var chosen, others []string
	for _, a := range f.Addresses {
		if name := a.Addr().String() + " (" + a.Interface; a.Reason == "" {
			chosen = append(chosen, name+")")
		} else if !a.Addr().IsLoopback() {
			others = append(others, name+": "+a.Reason+")")
		}
	}
	check.Found = strings.Join(chosen, ", ")
	if len(chosen) == 0 {
		check.Found = "none"
	}
	if len(others) > 0 {
		check.Found += "; not " + strings.Join(others, ", ")
	}
	if len(f.NoInterfaces) > 0 {
		names := strings.Join(f.NoInterfaces, ", ")
		check.Found += "; network.interfaces names " + names + ", and this machine has no such interface"
		consequence := "others are not told the addresses of " + names
		if len(chosen) == 0 {
			consequence = "other nodes cannot reach this one"
		}
		return warn(consequence, "Correct the name in network.interfaces (`ip -br link` lists the interfaces); if the interface appears later, the node takes its addresses then.")
	}
	if len(chosen) == 0 {
		return warn("other nodes cannot reach this one", "Give the machine an address, or name another interface as network.interfaces in the parameters.")
	}
	return check
}

// noInterfaces returns the names, of those in network.interfaces, that no interface of this machine has. Networks are left out.
func noInterfaces(named []string) (missing []string) {
	for _, name := range named {
		if _, err := netip.ParsePrefix(name); err == nil {
			continue
		}
		if _, err := net.InterfaceByName(name); err != nil {
			missing = append(missing, name)
		}
	}
	return missing
}
