package output

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// RoleShown is the document of `reeve node role show`: the remit of a role on a node, and the sandbox that enforces it.
type RoleShown struct {
	NodeID string `json:"node_id"`
	Role   string `json:"role"`
	*nodev1.GetRoleResponse
}

// NewRoleShown makes the document of what a node says of a role's remit.
func NewRoleShown(nodeID, role string, response *nodev1.GetRoleResponse) RoleShown {
	said := new(nodev1.GetRoleResponse)
	proto.Merge(said, response)
	if said.Grants == nil {
		said.Grants = new(clusterv1.RoleGrants)
	}
	said.Grants.Role, said.StopGrace = role, durationpb.New(limits.StopGraceOf(said.GetStopGrace()))
	return RoleShown{NodeID: nodeID, Role: role, GetRoleResponse: said}
}

func (r RoleShown) table(w io.Writer, now time.Time) {
	row(w, "Role", r.Role)
	row(w, "Node", r.NodeID)
	row(w, "State", WithReason(State(r.GetStatus().GetState()), r.GetStatus().GetReason()))
	row(w, "Plugin", strings.TrimSpace(r.GetStatus().GetPlugin()+" "+r.GetStatus().GetPluginVersion()))
	if r.GetStatus().GetRolledBack() != nil {
		row(w, "Rolled back", rolledBackText(r.GetStatus().GetRolledBack()))
	}
	row(w, "In Split", explainSplit(InSplit(r.GetInSplit())))
	row(w, "Starts from cache", yesNo(r.GetStartsFromCache()))
	row(w, "Ends with core", yesNo(r.GetEndsWithCore()))
	row(w, "Stop grace", StopGrace(r.GetStopGrace().AsDuration().Seconds()))
	_, _ = fmt.Fprintln(w, "\nGranted, to:")
	if none(r.GetGrants()) {
		_, _ = fmt.Fprintln(w, "  nothing beyond its own process and directories")
	}
	for _, line := range ExplainGrants(r.GetGrants()) {
		_, _ = fmt.Fprintln(w, "  "+line)
	}
	usageSection(w, r.GetUsage())
	if r.GetSandbox() == nil {
		_, _ = fmt.Fprintln(w, "\nNo process of it runs: there is no sandbox.")
		return
	}
	sandboxSection(w, r.GetSandbox())
}

func usageSection(w io.Writer, u *consensusv1.UserUsage) {
	if u == nil {
		return
	}
	_, _ = fmt.Fprintln(w, "\nIn the store:")
	row(w, "  User", u.GetConsensusUser())
	row(w, "  Bytes", share(formatSize(u.GetBytes()), u.GetBytes(), formatSize(u.GetBytesQuota()), u.GetBytesQuota()))
	row(w, "  Leases", share(number(u.GetLeases()), u.GetLeases(), number(u.GetLeasesQuota()), u.GetLeasesQuota()))
	row(w, "  Refused", number(u.GetRefused())+" requests")
}

// share says how much of what is allowed is used.
func share(used string, u int64, quota string, q int64) string {
	if q <= 0 {
		return used + ", not bounded"
	}
	return fmt.Sprintf("%s of %s (%d %%)", used, quota, int64(float64(u)/float64(q)*100))
}

func sandboxSection(w io.Writer, s *nodev1.Sandbox) {
	_, _ = fmt.Fprintln(w, "\nSandbox:")
	row(w, "  Tier", explainTier(Kind(s.GetTier())))
	user := fmt.Sprintf("uid %d, gid %d", s.GetUid(), s.GetGid())
	if s.GetOwnUser() {
		user += ", its own"
	} else {
		user += ", shared with others"
	}
	row(w, "  User", user)
	if Kind(s.GetTier()) != "privileged" {
		walls(w, s)
	}
	row(w, "  Memory", bounded(s.GetMemoryBytes(), formatSize))
	row(w, "  Processes", bounded(s.GetProcesses(), number[int64]))
	row(w, "  Open files", bounded(s.GetOpenFiles(), number[int64]))
	weight := "the usual one"
	if s.GetCpuWeight() != 0 {
		weight = number(s.GetCpuWeight())
	}
	row(w, "  CPU weight", weight)
	paths(w, "Control groups", s.GetControlGroups())
	missingParts(w, "\nNot enforced on this node:", s.GetMissing())
}

// walls writes what a process is kept from that has a sandbox.
func walls(w io.Writer, s *nodev1.Sandbox) {
	row(w, "  Capabilities", orNone(s.GetCapabilities()))
	row(w, "  No new privileges", yesNo(s.GetNoNewPrivileges()))
	row(w, "  Own mounts", yesNo(s.GetOwnMounts()))
	row(w, "  Own System V IPC", yesNo(s.GetOwnIpc()))
	row(w, "  Refused system calls", orNone(s.GetDeniedSystemCalls()))
	paths(w, "Reads", s.GetReads())
	paths(w, "Writes", s.GetWrites())
	paths(w, "Executes", s.GetExecutes())
	if s.GetUnixSocketsOnly() {
		row(w, "  Network", "Unix sockets only")
	} else {
		row(w, "  Listens on TCP", orNone(s.GetListens()))
		row(w, "  Connects to TCP", orNone(s.GetConnects()))
	}
}

// paths writes one path a line.
func paths(w io.Writer, name string, of []string) {
	if len(of) == 0 {
		row(w, "  "+name, "none")
	}
	for i, path := range of {
		if i > 0 {
			// A cell that is empty would be shown as "-".
			_, _ = fmt.Fprintln(w, "\t"+Clean(path))
			continue
		}
		row(w, "  "+name, path)
	}
}

func bounded(value int64, text func(int64) string) string {
	if value == 0 {
		return "not bounded"
	}
	return "at most " + text(value)
}

// missingParts writes what a node cannot enforce, and nothing if it can enforce everything.
func missingParts(w io.Writer, head string, parts []*clusterv1.Missing) {
	if len(parts) == 0 {
		return
	}
	_, _ = fmt.Fprintln(w, head)
	for _, part := range parts {
		row(w, "  "+part.GetName(), part.GetReason())
	}
}

func explainTier(tier string) string {
	return tier + map[string]string{
		"confined":   " (no more than every role may, apart from ports and bounds)",
		"granted":    " (it has named powers besides)",
		"privileged": " (NO SANDBOX)",
	}[tier]
}

// isolation says how the roles of a node are kept apart, and how much of that is missing.
func isolation(kind string, missing []*clusterv1.Missing) string {
	text := explainIsolation(kind)
	if len(missing) == 0 {
		return text
	}
	var names []string
	for _, part := range missing {
		names = append(names, part.GetName())
	}
	parts := "parts"
	if len(missing) == 1 {
		parts = "part"
	}
	return text + ", " + strconv.Itoa(len(missing)) + " " + parts + " missing: " + strings.Join(names, ", ")
}
