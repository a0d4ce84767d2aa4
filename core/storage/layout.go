package storage

import (
	"path/filepath"

	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// Layout names the files and directories of a node.
type Layout struct {
	// System is small and unencrypted, Data is the volume, Run is a tmpfs.
	System, Data, Run string
	// Clear is a directory of the volume's file system that is not encrypted; empty: there is none. The volume says where it is.
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

// Configuration is the file of the sealed configuration.
func (l Layout) Configuration() string { return filepath.Join(l.System, "configuration.json") }

// VolumeKey is the file of the data key of the volume, wrapped by the two halves that open it.
func (l Layout) VolumeKey() string { return filepath.Join(l.System, "volume-key.json") }

// Recovery is the file of all that opens the volume, which only the owner's recovery key opens.
func (l Layout) Recovery() string { return filepath.Join(l.System, "recovery.age") }

// CUK is the file of the cluster's half of the key of the volume, sealed by the machine's TPM.
func (l Layout) CUK() string { return filepath.Join(l.System, "cuk.json") }

// Incarnation is the file with the number of the core's newest start.
func (l Layout) Incarnation() string { return filepath.Join(l.System, "incarnation.json") }

// Disowned is the file that is there once the node was removed from its cluster.
func (l Layout) Disowned() string { return filepath.Join(l.System, "disowned.json") }

// Consumed is the file that says which parameters have made a node already.
func (l Layout) Consumed() string { return filepath.Join(l.System, "consumed.json") }

// Image is where the file system of the volume is, where it is in a file and the parameters do not say where.
func (l Layout) Image() string { return filepath.Join(l.System, "volume.img") }

// ImageMount is where the file system of the image is mounted, for the core only.
func (l Layout) ImageMount() string { return filepath.Join(l.System, "volume") }

// Volume is the file that says what volume Data is.
func (l Layout) Volume() string { return filepath.Join(l.Data, "volume.json") }

// Plugins is the directory of executables by digest. They are no secret, and what is no executable of the catalog is not executed, whoever has put it there.
func (l Layout) Plugins() string {
	if l.Clear != "" {
		return filepath.Join(l.Clear, "plugins")
	}
	return l.EarlierPlugins()
}

// EarlierPlugins is where the executables were before they lay in Clear. Where there is none, that is where they are.
func (l Layout) EarlierPlugins() string { return filepath.Join(l.Data, "plugins") }

// Identity is the directory of the cluster's and the node's certificates.
func (l Layout) Identity() string { return filepath.Join(l.Data, "identity") }

// Assignment is the file of the roles that the cluster last assigned to the node.
func (l Layout) Assignment() string { return filepath.Join(l.Data, "cache", "assignment.json") }

// Curators is the file of where the cluster's curators were last.
func (l Layout) Curators() string { return filepath.Join(l.Data, "cache", "curators.json") }

// Roles is the directory in which every role has a directory of its own.
func (l Layout) Roles() string { return filepath.Join(l.Data, "roles") }

// Reserve is the file that takes room on the volume for when it is full.
func (l Layout) Reserve() string { return filepath.Join(l.Data, "reserve") }

// Full is the file that says which roles must not run since they filled the volume.
func (l Layout) Full() string { return filepath.Join(l.Data, "cache", "full.json") }

// Executables is the file that says when the executables of plugins were last of use.
func (l Layout) Executables() string { return filepath.Join(l.Data, "cache", "executables.json") }

// Log is the file to which the instances of a role write their standard error.
func (l Layout) Log(role string) string { return filepath.Join(l.Data, "logs", role+".log") }

// Events is the file of what happened on the node.
func (l Layout) Events() string { return filepath.Join(l.Data, "events.jsonl") }

// Failures is the directory of how roles last failed.
func (l Layout) Failures() string { return filepath.Join(l.Data, "failures") }

// Start is the file with the order of the core's starts.
func (l Layout) Start() string { return filepath.Join(l.Data, "start.json") }

// Users is the file that says which user ID belongs to which role.
func (l Layout) Users() string { return filepath.Join(l.Data, "uids.json") }

// Sealed is the file that is there while the node is sealed since somebody asked for it. It does not outlive the machine's run, nor does that wish.
func (l Layout) Sealed() string { return filepath.Join(l.Run, "sealed") }

// NodeSocket is the socket of the node's own API.
func (l Layout) NodeSocket() string { return filepath.Join(l.Run, "node.sock") }
