package storage

import (
	"path/filepath"

	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// Layout names the files and directories of a node.
type Layout struct {
	// System is small and unencrypted. Data is the volume. Run is a tmpfs.
	System, Data, Run string
	// Clear is an unencrypted directory of the volume's file system; empty if there is none. The volume says where it is.
	Clear string
}

// NewLayout returns the layout that the parameters ask for.
func NewLayout(directories *nodev1.Directories) Layout {
	return Layout{
		System: filepath.Clean(directories.GetSystem()),
		Data:   filepath.Clean(directories.GetData()),
		Run:    filepath.Clean(directories.GetRun()),
	}
}

// Configuration is the sealed configuration.
func (l Layout) Configuration() string { return filepath.Join(l.System, "configuration.json") }

// VolumeKey is the volume's data key, wrapped by NUK and CUK.
func (l Layout) VolumeKey() string { return filepath.Join(l.System, "volume-key.json") }

// Recovery holds everything that opens the volume, encrypted to the owner's recovery key.
func (l Layout) Recovery() string { return filepath.Join(l.System, "recovery.age") }

// CUK is the cluster unlock key, sealed by the machine's TPM.
func (l Layout) CUK() string { return filepath.Join(l.System, "cuk.json") }

// Incarnation holds the number of the core's newest start.
func (l Layout) Incarnation() string { return filepath.Join(l.System, "incarnation.json") }

// Disowned exists once the node was removed from its cluster.
func (l Layout) Disowned() string { return filepath.Join(l.System, "disowned.json") }

// Consumed says which parameters were already used to make a node.
func (l Layout) Consumed() string { return filepath.Join(l.System, "consumed.json") }

// Image is the default place of the volume's image file.
func (l Layout) Image() string { return filepath.Join(l.System, "volume.img") }

// ImageMount is where the image's file system is mounted, for the core only.
func (l Layout) ImageMount() string { return filepath.Join(l.System, "volume") }

// Volume says which volume Data is.
func (l Layout) Volume() string { return filepath.Join(l.Data, "volume.json") }

// Plugins is the directory of executables by digest. They are no secret. The core executes only files whose digest is in the catalog, whoever put
// them there.
func (l Layout) Plugins() string {
	if l.Clear != "" {
		return filepath.Join(l.Clear, "plugins")
	}
	return filepath.Join(l.Data, "plugins")
}

// Identity is the directory of the cluster's and the node's certificates.
func (l Layout) Identity() string { return filepath.Join(l.Data, "identity") }

// Assignment caches the roles that the cluster last assigned to the node.
func (l Layout) Assignment() string { return filepath.Join(l.Data, "cache", "assignment.json") }

// Curators caches the last known addresses of the curators.
func (l Layout) Curators() string { return filepath.Join(l.Data, "cache", "curators.json") }

// Nodes caches where other nodes serve their own API.
func (l Layout) Nodes() string { return filepath.Join(l.Data, "cache", "nodes.json") }

// Generation keeps which generation of the cluster's store the node follows.
func (l Layout) Generation() string { return filepath.Join(l.Data, "cache", "generation.json") }

// Address caches the address by which other nodes were last told to reach this one.
func (l Layout) Address() string { return filepath.Join(l.Data, "cache", "address.json") }

// Peers keeps on which machines an operator said that other nodes may be.
func (l Layout) Peers() string { return filepath.Join(l.Data, "cache", "peers.json") }

// Roles holds a private directory for each role.
func (l Layout) Roles() string { return filepath.Join(l.Data, "roles") }

// Reserve takes space on the volume, to be freed when the volume is full.
func (l Layout) Reserve() string { return filepath.Join(l.Data, "reserve") }

// Full says which roles must not run because they filled the volume.
func (l Layout) Full() string { return filepath.Join(l.Data, "cache", "full.json") }

// Executables says when each plugin executable was last used.
func (l Layout) Executables() string { return filepath.Join(l.Data, "cache", "executables.json") }

// Log is the standard error of a role's instances.
func (l Layout) Log(role string) string { return filepath.Join(l.Data, "logs", role+".log") }

// Events is the node's event journal.
func (l Layout) Events() string { return filepath.Join(l.Data, "events.jsonl") }

// Failures holds each role's last failure.
func (l Layout) Failures() string { return filepath.Join(l.Data, "failures") }

// Start holds the number of the core's last start.
func (l Layout) Start() string { return filepath.Join(l.Data, "start.json") }

// Users maps roles to user IDs.
func (l Layout) Users() string { return filepath.Join(l.Data, "uids.json") }

// Sealed exists while an operator keeps the node sealed. It ends with the machine's run.
func (l Layout) Sealed() string { return filepath.Join(l.Run, "sealed") }

// NodeSocket is the socket of the node's own API.
func (l Layout) NodeSocket() string { return filepath.Join(l.Run, "node.sock") }
