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
		var texts []string
		for _, name := range slices.Sorted(maps.Keys(of)) {
			texts = append(texts, bound(name, of[name]))
		}
		return "have other bounds than the usual ones: " + strings.Join(texts, ", ")
	}
	return grant.GetName() + parameters(of)
}

func port(number string) string {
	if number == remit.AnyPort {
		return "every TCP port"
	}
	return "TCP port " + number
}

// bounds say what a parameter of a limit bounds, with its value in front.
var bounds = map[string]string{
	remit.LimitMemory: " of memory", remit.LimitProcesses: " processes and threads", remit.LimitOpenFiles: " open files",
	remit.LimitStoreBytes: " in the store", remit.LimitStoreLeases: " leases in the store",
}

func bound(name, value string) string {
	if name == remit.LimitCPUWeight {
		return "a CPU weight of " + value
	}
	if what, ok := bounds[name]; ok {
		return value + what
	}
	return name + "=" + value
}

// capabilityMeanings say what a process may do with a capability of Linux, by the name that it has in grants.
var capabilityMeanings = map[string]string{
	"audit-write":      "write to the kernel's audit log",
	"chown":            "give files to other users",
	"fowner":           "act as the owner of every file that it reaches",
	"ipc-lock":         "lock memory",
	"ipc-owner":        "use every System V IPC object",
	"kill":             "send signals to the processes of other users",
	"lease":            "take leases on every file that it reaches",
	"linux-immutable":  "make files immutable",
	"net-admin":        "configure the machine's network",
	"net-bind-service": "listen on ports below 1024",
	"net-broadcast":    "send broadcasts and multicasts",
	"net-raw":          "send and read raw packets",
	"sys-boot":         "reboot the machine",
	"sys-nice":         "change the priority of processes",
	"sys-pacct":        "switch process accounting on and off",
	"sys-resource":     "exceed the limits of the kernel",
	"sys-time":         "set the machine's clock",
	"syslog":           "read and clear the kernel's messages",
	"wake-alarm":       "wake the machine up",
}

// CapabilityMeaning says what a process may do with a capability of Linux, by the name that it has in grants; empty: it is not known.
func CapabilityMeaning(name string) string { return capabilityMeanings[name] }

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
