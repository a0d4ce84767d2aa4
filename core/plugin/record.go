package plugin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/core/storage"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/sdk/role"
)

// recordVersion is the version of the records. One of another version is of a core that launched differently: its instance is ended.
const recordVersion = 3

// record is what a core leaves behind about an instance, for the next one: written before the process exists, so that it can be ended, and again when it is
// connected, so that it can be adopted.
type record struct {
	Version    int    `json:"version"`
	InstanceID string `json:"instanceId"`
	Role       string `json:"role"`
	UID        uint32 `json:"uid"`
	SharedUID  bool   `json:"sharedUid,omitempty"`
	// BootID is the boot of the machine in which PID and Start mean something.
	BootID string `json:"bootId"`
	// PID and Start are zero until the process is known.
	PID    int    `json:"pid,omitempty"`
	Start  uint64 `json:"start,omitempty"`
	Digest string `json:"digest"`
	// CoreStart is when the core that launched it started, in nanoseconds of the Unix epoch: for people who compare it with a log.
	CoreStart int64 `json:"coreStart"`
	// Socket is the plugin's; empty until it is known.
	Socket string `json:"socket,omitempty"`
	// Protocol is the version of the plugin handshake that was made.
	Protocol uint `json:"protocol,omitempty"`
	// Launched is when, in nanoseconds of the Unix epoch.
	Launched int64 `json:"launched,omitempty"`
	// Spec is what was launched; nil for what is not to be adopted.
	Spec *recordedSpec `json:"spec,omitempty"`
}

// recordedSpec is a Spec in a record.
type recordedSpec struct {
	// Plugin is a reeve.cluster.v1.PluginRecord as bytes: with the fields that this core does not know.
	Plugin        []byte `json:"plugin"`
	Configuration string `json:"configuration,omitempty"`
	Generation    uint64 `json:"generation"`
	Restarts      uint32 `json:"restarts,omitempty"`
}

func recordSpec(spec Spec) (*recordedSpec, error) {
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(spec.Plugin)
	if err != nil {
		return nil, err
	}
	return &recordedSpec{Plugin: encoded, Configuration: spec.Configuration, Generation: spec.Generation, Restarts: spec.Restarts}, nil
}

// spec is what the instance of a record was launched for.
func (r record) spec() (Spec, error) {
	if r.Spec == nil {
		return Spec{}, errors.New("its record does not say what it was launched for")
	}
	plugin := new(clusterv1.PluginRecord)
	if err := proto.Unmarshal(r.Spec.Plugin, plugin); err != nil {
		return Spec{}, fmt.Errorf("its record: %w", err)
	}
	return Spec{
		Role: r.Role, Plugin: plugin, Configuration: r.Spec.Configuration, Generation: r.Spec.Generation, Restarts: r.Spec.Restarts,
	}, nil
}

// recordSuffix comes to the name of an instance in the directory of the records.
const recordSuffix = ".json"

func (l *Launcher) recordPath(name string) string {
	return filepath.Join(l.instancesDir(), name+recordSuffix)
}

func (l *Launcher) writeRecord(name string, r record) error {
	r.Version, r.BootID, r.CoreStart = recordVersion, l.bootID, l.coreStart.UnixNano()
	return storage.WriteJSON(l.recordPath(name), r, 0o600)
}

// recordOf is the record of an instance that is connected.
func recordOf(remit *Remit, digest string, process Process, socket string, launched time.Time, spec *recordedSpec) record {
	return record{
		InstanceID: remit.InstanceID, Role: remit.Role, UID: remit.UID, SharedUID: remit.SharedUID, Digest: digest,
		PID: process.PID, Start: process.Start, Socket: socket, Protocol: role.Handshake.ProtocolVersion, Launched: launched.UnixNano(), Spec: spec,
	}
}

// removeRecord removes the record last: while it is there the next core looks after the rest.
func (l *Launcher) removeRecord(name string) error {
	err := errors.Join(l.outputs.Remove(name), l.forgetState(name))
	if err == nil {
		if err = os.Remove(l.recordPath(name)); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	return err
}

// readRecords returns what the records say, and the problems of those that say nothing that this core understands.
func (l *Launcher) readRecords() (records []record, problems []error, err error) {
	entries, err := os.ReadDir(l.instancesDir())
	if err != nil {
		return nil, nil, err
	}
	for _, entry := range entries {
		name, whole := strings.CutSuffix(entry.Name(), recordSuffix)
		if !whole {
			continue // beside a record, or what an interrupted write left
		}
		path := filepath.Join(l.instancesDir(), entry.Name())
		content, err := os.ReadFile(path)
		var r record
		if err == nil {
			r, err = parseRecord(content, l.nodeID, name)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", path, err))
			continue
		}
		records = append(records, r)
	}
	return records, problems, nil
}

// parseRecord reads the record of the instance of a node that has a name.
func parseRecord(content []byte, nodeID, name string) (record, error) {
	var r record
	if err := storage.ParseJSON(content, recordVersion, &r); err != nil {
		return record{}, err
	}
	if number, ok := strings.CutPrefix(name, r.Role+"."); !ok || r.InstanceID != nodeID+"/"+r.Role+"/"+number {
		return record{}, fmt.Errorf("it is of instance %q", textFrom(r.InstanceID))
	}
	return r, nil
}

// name is the name of the instance of a record.
func (r record) name() string {
	return r.Role + "." + r.InstanceID[strings.LastIndexByte(r.InstanceID, '/')+1:]
}
