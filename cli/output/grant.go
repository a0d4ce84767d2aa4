package output

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/proto/remit"
)

// none says that there is nothing among the powers.
func none(g *clusterv1.RoleGrants) bool { return g.GetConsensusUser() == "" && len(g.GetGrants()) == 0 }

// ExplainGrants are the powers of a role in words that an operator understands, one each.
func ExplainGrants(g *clusterv1.RoleGrants) []string {
	var lines []string
	if g.GetConsensusUser() != "" {
		lines = append(lines, ExplainUser(g.GetConsensusUser()))
	}
	for _, grant := range g.GetGrants() {
		lines = append(lines, Clean(Explain(grant)))
	}
	return lines
}

// ExplainUser says what a role may do that has a ConsensusUser.
func ExplainUser(user string) string { return "use the consensus store, as user " + Clean(user) }

// Explain says in words that an operator understands what a role may do with a grant. One that is not known is shown as it is.
func Explain(grant *rolev1.Grant) string {
	of := grant.GetParameters()
	path := of["path"]
	switch grant.GetName() {
	case remit.Privileged:
		return "PRIVILEGED: no sandbox at all, runs as the user of reeved, which is root on a node that is installed"
	case remit.Listen:
		return "listen on " + port(of["port"])
	case remit.Connect:
		return "connect to " + port(of["port"]) + " of any machine"
	case remit.ReadPath:
		return "read " + path + " and what is below it"
	case remit.WritePath:
		return "read and change " + path + " and what is below it"
	case remit.ExecutePath:
		return "execute " + path + " and what is below it"
	case remit.ReplaceFile:
		return "replace the file " + path
	case remit.SetHostname:
		if path != "" {
			return "set the machine's host name, and keep it in " + path
		}
		return "set the machine's host name"
	case remit.SetMachineID:
		return "set the machine's ID in " + path
	case remit.WatchOperators:
		return "know who operates the cluster, to let operators in"
	case remit.Capability:
		name := of["name"]
		capability := "CAP_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		return cmp.Or(CapabilityMeaning(name), "use a capability of Linux") + " (" + capability + ")"
	case remit.Limit:
		var bounds []string
		for _, name := range slices.Sorted(maps.Keys(of)) {
			bounds = append(bounds, bound(name, of[name]))
		}
		return "have other bounds than the usual ones: " + strings.Join(bounds, ", ")
	}
	return grant.GetName() + parameters(of)
}

func port(number string) string {
	if number == remit.AnyPort {
		return "every TCP port"
	}
	return "TCP port " + number
}

func bound(name, value string) string {
	switch name {
	case remit.LimitMemory:
		return value + " of memory"
	case remit.LimitProcesses:
		return value + " processes and threads"
	case remit.LimitOpenFiles:
		return value + " open files"
	case remit.LimitCPUWeight:
		return "a CPU weight of " + value
	case remit.LimitStoreBytes:
		return value + " in the store"
	case remit.LimitStoreLeases:
		return value + " leases in the store"
	}
	return name + "=" + value
}

// CapabilityMeaning says what a process may do with a capability of Linux, by the name that it has in grants; empty: it is not known.
func CapabilityMeaning(name string) string {
	switch name {
	case "audit-write":
		return "write to the kernel's audit log"
	case "chown":
		return "give files to other users"
	case "fowner":
		return "act as the owner of every file that it reaches"
	case "ipc-lock":
		return "lock memory"
	case "ipc-owner":
		return "use every System V IPC object"
	case "kill":
		return "send signals to the processes of other users"
	case "lease":
		return "take leases on every file that it reaches"
	case "linux-immutable":
		return "make files immutable"
	case "net-admin":
		return "configure the machine's network"
	case "net-bind-service":
		return "listen on ports below 1024"
	case "net-broadcast":
		return "send broadcasts and multicasts"
	case "net-raw":
		return "send and read raw packets"
	case "sys-boot":
		return "reboot the machine"
	case "sys-nice":
		return "change the priority of processes"
	case "sys-pacct":
		return "switch process accounting on and off"
	case "sys-resource":
		return "exceed the limits of the kernel"
	case "sys-time":
		return "set the machine's clock"
	case "syslog":
		return "read and clear the kernel's messages"
	case "wake-alarm":
		return "wake the machine up"
	}
	return ""
}

// GrantTexts are grants as the command line names them, each in one line.
func GrantTexts(of []*rolev1.Grant) []string {
	var texts []string
	for _, grant := range of {
		texts = append(texts, grant.GetName()+parameters(grant.GetParameters()))
	}
	return texts
}

func parameters(of map[string]string) string {
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(of)) {
		text.WriteString(" " + key + "=" + of[key])
	}
	return text.String()
}
