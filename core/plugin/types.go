package plugin

import (
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/proto/remit"
)

// Remit is who an instance is and what it may: everything that the rest of the core needs to know of it. It does not change while the
// instance lives.
type Remit struct {
	// InstanceID is "<node ID>/<role>/<counter>".
	InstanceID string
	// Name is "<role>.<counter>", under which the directories of the instance are kept.
	Name string
	Role string
	// UID and GID are the instance's own where the core is root, and the core's otherwise and where the role is privileged.
	UID, GID uint32
	// SharedUID says that UID is not the instance's own.
	SharedUID bool
	// Manifest is what the plugin says of the role.
	Manifest *rolev1.RoleManifest
	// Grants is what the owner granted to the role; never nil.
	Grants *clusterv1.RoleGrants
	// Powers is what the grants allow, and Tier how far that opens the sandbox.
	Powers remit.Remit
	Tier   clusterv1.Tier

	// digest is the executable that Prepare found.
	digest string
}

// Process is the process of an instance, which is also the leader of the instance's process group.
type Process struct {
	PID int
	// Start is when the process started: field 22 of /proc/PID/stat. PIDs are used again, a PID with its start is not.
	Start uint64
}
