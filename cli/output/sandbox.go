package output

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// RoleShown is the document of `reeve role show`: the remit of a role on a node, and the sandbox that enforces it.
type RoleShown struct {
	NodeID string `json:"node_id"`
	Role   string `json:"role"`
	// Instance is what the node says of it.
	Instance Role `json:"instance"`
	// Granted is what the owner granted.
	Granted RoleGrants `json:"granted"`
	// Sandbox is that of its process; null while none runs.
	Sandbox *Sandbox `json:"sandbox"`
	// Usage is what its ConsensusUser has in the store; null if it has none, or no member runs on the node.
	Usage *Usage `json:"usage"`
	// InSplit is "continue", "stop" or "told".
	InSplit         string `json:"in_split"`
	StartsFromCache bool   `json:"starts_from_cache"`
	EndsWithCore    bool   `json:"ends_with_core"`
	// StopGraceSeconds is how long it may take to stop.
	StopGraceSeconds float64 `json:"stop_grace_seconds"`
}

// Sandbox is what confines a process of a role.
type Sandbox struct {
	// Tier is "confined", "granted" or "privileged".
	Tier string `json:"tier"`
	UID  uint32 `json:"uid"`
	GID  uint32 `json:"gid"`
	// OwnUser says that no other role has this user ID.
	OwnUser bool `json:"own_user"`
	// Capabilities of Linux; none for most.
	Capabilities    []string `json:"capabilities"`
	NoNewPrivileges bool     `json:"no_new_privileges"`
	// DeniedSystemCalls are groups of system calls that are refused.
	DeniedSystemCalls []string `json:"denied_system_calls"`
	// Reads, Writes and Executes are files, or directories with what is below them.
	Reads    []string `json:"reads"`
	Writes   []string `json:"writes"`
	Executes []string `json:"executes"`
	// Listens and Connects are TCP ports, or "any".
	Listens         []string `json:"listens"`
	Connects        []string `json:"connects"`
	UnixSocketsOnly bool     `json:"unix_sockets_only"`
	OwnMounts       bool     `json:"own_mounts"`
	OwnIPC          bool     `json:"own_ipc"`
	// Bounds; 0: none.
	MemoryBytes int64 `json:"memory_bytes"`
	Processes   int64 `json:"processes"`
	CPUWeight   int64 `json:"cpu_weight"`
	OpenFiles   int64 `json:"open_files"`
	// ControlGroups are one for each controller.
	ControlGroups []string `json:"control_groups"`
	// Missing is what of all this is not enforced.
	Missing []MissingPart `json:"missing"`
}

// MissingPart is a part of a sandbox that a node cannot enforce.
type MissingPart struct {
	// Name is stable, such as "cgroup-memory"; docs/reference/sandbox.md lists them.
	Name string `json:"name"`
	// Reason says why, and what would help.
	Reason string `json:"reason"`
}

// Usage is what a ConsensusUser has in the store.
type Usage struct {
	ConsensusUser string `json:"consensus_user"`
	Bytes         int64  `json:"bytes"`
	// BytesQuota is 0 where it may have as much as fits.
	BytesQuota int64 `json:"bytes_quota"`
	Leases     int64 `json:"leases"`
	// LeasesQuota is 0 where it may have as many as it wants.
	LeasesQuota int64 `json:"leases_quota"`
	// Refused counts its requests that were refused, since the process of the node's member was started, because it had used up what it may.
	Refused uint64 `json:"refused"`
}

// NewRoleShown makes the document of what a node says of a role's remit.
func NewRoleShown(nodeID, role string, r *nodev1.GetRoleResponse) RoleShown {
	shown := RoleShown{
		NodeID:          nodeID,
		Role:            role,
		Instance:        NewRole(r.GetStatus()),
		Granted:         newRoleGrants(r.GetGrants()),
		Sandbox:         newSandbox(r.GetSandbox()),
		Usage:           newUsage(r.GetUsage()),
		InSplit:         InSplit(r.GetInSplit()),
		StartsFromCache: r.GetStartsFromCache(),
		EndsWithCore:    r.GetEndsWithCore(),

		StopGraceSeconds: limits.StopGraceOf(r.GetStopGrace()).Seconds(),
	}
	shown.Granted.Role = role
	return shown
}

func newSandbox(s *nodev1.Sandbox) *Sandbox {
	if s == nil {
		return nil
	}
	return &Sandbox{
		Tier:              Kind(s.GetTier()),
		UID:               s.GetUid(),
		GID:               s.GetGid(),
		OwnUser:           s.GetOwnUser(),
		Capabilities:      list(s.GetCapabilities()),
		NoNewPrivileges:   s.GetNoNewPrivileges(),
		DeniedSystemCalls: list(s.GetDeniedSystemCalls()),
		Reads:             list(s.GetReads()),
		Writes:            list(s.GetWrites()),
		Executes:          list(s.GetExecutes()),
		Listens:           list(s.GetListens()),
		Connects:          list(s.GetConnects()),
		UnixSocketsOnly:   s.GetUnixSocketsOnly(),
		OwnMounts:         s.GetOwnMounts(),
		OwnIPC:            s.GetOwnIpc(),
		MemoryBytes:       s.GetMemoryBytes(),
		Processes:         s.GetProcesses(),
		CPUWeight:         s.GetCpuWeight(),
		OpenFiles:         s.GetOpenFiles(),
		ControlGroups:     list(s.GetControlGroups()),
		Missing:           newMissing(s.GetMissing()),
	}
}

func newMissing(from []*clusterv1.Missing) []MissingPart {
	parts := []MissingPart{}
	for _, part := range from {
		parts = append(parts, MissingPart{Name: part.GetName(), Reason: part.GetReason()})
	}
	return parts
}

func newUsage(u *consensusv1.UserUsage) *Usage {
	if u == nil {
		return nil
	}
	return &Usage{
		ConsensusUser: u.GetConsensusUser(), Bytes: u.GetBytes(), BytesQuota: u.GetBytesQuota(), Leases: u.GetLeases(), LeasesQuota: u.GetLeasesQuota(), Refused: u.GetRefused(),
	}
}

func (r RoleShown) table(w io.Writer, now time.Time) {
	row(w, "Role", r.Role)
	row(w, "Node", r.NodeID)
	state := r.Instance.State
	if r.Instance.Reason != "" {
		state += ": " + r.Instance.Reason
	}
	row(w, "State", state)
	row(w, "Plugin", strings.TrimSpace(r.Instance.Plugin+" "+r.Instance.PluginVersion))
	if r.Instance.RolledBack != nil {
		row(w, "Rolled back", r.Instance.RolledBack.text())
	}
	row(w, "In Split", explainSplit(r.InSplit))
	row(w, "Starts from cache", yesNo(r.StartsFromCache))
	row(w, "Ends with core", yesNo(r.EndsWithCore))
	row(w, "Stop grace", StopGrace(r.StopGraceSeconds))
	_, _ = fmt.Fprintln(w, "\nGranted, to:")
	if r.Granted.none() {
		_, _ = fmt.Fprintln(w, "  nothing beyond its own process and directories")
	}
	for _, line := range r.Granted.Lines() {
		_, _ = fmt.Fprintln(w, "  "+line)
	}
	r.Usage.section(w)
	if r.Sandbox == nil {
		_, _ = fmt.Fprintln(w, "\nNo process of it runs: there is no sandbox.")
		return
	}
	r.Sandbox.section(w)
}

func (u *Usage) section(w io.Writer) {
	if u == nil {
		return
	}
	_, _ = fmt.Fprintln(w, "\nIn the store:")
	row(w, "  User", u.ConsensusUser)
	row(w, "  Bytes", share(bytes(u.Bytes), u.Bytes, bytes(u.BytesQuota), u.BytesQuota))
	row(w, "  Leases", share(number(u.Leases), u.Leases, number(u.LeasesQuota), u.LeasesQuota))
	row(w, "  Refused", number(u.Refused)+" requests")
}

// share says how much of what is allowed is used.
func share(used string, u int64, quota string, q int64) string {
	if q <= 0 {
		return used + ", not bounded"
	}
	return fmt.Sprintf("%s of %s (%d %%)", used, quota, int64(float64(u)/float64(q)*100))
}

func (s *Sandbox) section(w io.Writer) {
	_, _ = fmt.Fprintln(w, "\nSandbox:")
	row(w, "  Tier", explainTier(s.Tier))
	user := fmt.Sprintf("uid %d, gid %d", s.UID, s.GID)
	if s.OwnUser {
		user += ", its own"
	} else {
		user += ", shared with others"
	}
	row(w, "  User", user)
	if s.Tier != "privileged" {
		s.walls(w)
	}
	row(w, "  Memory", bounded(s.MemoryBytes, bytes))
	row(w, "  Processes", bounded(s.Processes, number[int64]))
	row(w, "  Open files", bounded(s.OpenFiles, number[int64]))
	weight := "the usual one"
	if s.CPUWeight != 0 {
		weight = number(s.CPUWeight)
	}
	row(w, "  CPU weight", weight)
	paths(w, "Control groups", s.ControlGroups)
	missingParts(w, "\nNot enforced on this node:", s.Missing)
}

// walls writes what a process is kept from that has a sandbox.
func (s *Sandbox) walls(w io.Writer) {
	row(w, "  Capabilities", orNone(s.Capabilities))
	row(w, "  No new privileges", yesNo(s.NoNewPrivileges))
	row(w, "  Own mounts", yesNo(s.OwnMounts))
	row(w, "  Own System V IPC", yesNo(s.OwnIPC))
	row(w, "  Refused system calls", orNone(s.DeniedSystemCalls))
	paths(w, "Reads", s.Reads)
	paths(w, "Writes", s.Writes)
	paths(w, "Executes", s.Executes)
	if s.UnixSocketsOnly {
		row(w, "  Network", "Unix sockets only")
	} else {
		row(w, "  Listens on TCP", orNone(s.Listens))
		row(w, "  Connects to TCP", orNone(s.Connects))
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
func missingParts(w io.Writer, head string, parts []MissingPart) {
	if len(parts) == 0 {
		return
	}
	_, _ = fmt.Fprintln(w, head)
	for _, part := range parts {
		row(w, "  "+part.Name, part.Reason)
	}
}

func explainTier(tier string) string {
	switch tier {
	case "confined":
		return tier + " (no more than every role may, apart from ports and bounds)"
	case "granted":
		return tier + " (it has named powers besides)"
	case "privileged":
		return tier + " (NO SANDBOX)"
	}
	return tier
}

// isolation says how the roles of a node are kept apart, and how much of that is missing.
func isolation(kind string, missing []MissingPart) string {
	text := explainIsolation(kind)
	if len(missing) == 0 {
		return text
	}
	var names []string
	for _, part := range missing {
		names = append(names, part.Name)
	}
	parts := "parts"
	if len(missing) == 1 {
		parts = "part"
	}
	return text + ", " + strconv.Itoa(len(missing)) + " " + parts + " missing: " + strings.Join(names, ", ")
}
