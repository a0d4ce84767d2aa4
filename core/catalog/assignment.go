package catalog

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/core/storage"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// assignmentVersion is the version of the format of the assignment's file.
const assignmentVersion = 1

// Assignment is the roles that the node should run and the catalog entries of their plugins.
type Assignment struct {
	Roles   []*clusterv1.RoleAssignment
	Plugins []*clusterv1.PluginRecord
	// Policy is what the owner demands of all nodes; nil: nothing.
	Policy *clusterv1.ClusterPolicy
	// Drained says that the roles are held back, but for those that the cluster itself runs on.
	Drained bool
	// ClusterUser is the ConsensusUser of the role that provides the cluster API, as the cluster said when it took the node in; empty: the role is on this node.
	ClusterUser string
}

// assignmentFile is the file in which the last assignment is kept, so that the roles that start from cache start without the cluster.
type assignmentFile struct {
	Version int               `json:"version"`
	Roles   []json.RawMessage `json:"roles"`
	Plugins []json.RawMessage `json:"plugins"`
	Policy  json.RawMessage   `json:"policy,omitempty"`

	Drained     bool   `json:"drained,omitempty"`
	ClusterUser string `json:"cluster_user,omitempty"`
}

// Kept is the assignment that the node knows before it hears from the cluster as a member.
type Kept struct {
	// Path is the file in which an assignment is kept.
	Path string
	// First is the assignment with which the core started.
	First *Assignment
	// Built are the catalog entries of the plugins whose executables the node brought; nil for a member.
	Built []*clusterv1.PluginRecord
	// Bootstrap is the request that bootstraps the cluster; nil if the node does not make its cluster.
	Bootstrap *clusterv1.BootstrapRequest
	// Committed is what the cluster assigned when it took the node in.
	Committed event.Value[*Assignment]
}

// Plugins are the catalog entries that the node knows at its start.
func (k *Kept) Plugins() []*clusterv1.PluginRecord {
	if k.Built != nil {
		return k.Built
	}
	return k.First.Plugins
}

// Keep saves what the cluster assigns when it takes the node in, and then publishes it: a member always finds an assignment.
func (k *Kept) Keep(answer *clusterv1.CommitResponse) error {
	assigned := &Assignment{
		Roles: answer.GetNode().GetRoles(), Plugins: answer.GetPlugins(), Policy: answer.GetPolicy(), Drained: answer.GetNode().GetDrained(),
		ClusterUser: cmp.Or(answer.GetClusterUser(), k.ClusterUser()),
	}
	if err := WriteAssignment(k.Path, assigned); err != nil {
		return err
	}
	k.Committed.Set(assigned)
	return nil
}

// ClusterUser returns the ConsensusUser of the role that provides the cluster API; empty: not known.
func (k *Kept) ClusterUser() string {
	committed, _ := k.Committed.Get()
	return cmp.Or(committed.ClusterAPIUser(), k.First.ClusterAPIUser())
}

// WriteAssignment keeps an assignment in a file.
func WriteAssignment(path string, a *Assignment) error {
	file := assignmentFile{Version: assignmentVersion, Roles: []json.RawMessage{}, Plugins: []json.RawMessage{}, Drained: a.Drained, ClusterUser: a.ClusterUser}
	var err error
	if file.Roles, err = encode(a.Roles); err != nil {
		return fmt.Errorf("catalog: keep the assigned roles: %w", err)
	}
	if file.Plugins, err = encode(a.Plugins); err != nil {
		return fmt.Errorf("catalog: keep the assigned roles: %w", err)
	}
	if a.Policy != nil {
		if file.Policy, err = protojson.Marshal(a.Policy); err != nil {
			return fmt.Errorf("catalog: keep the cluster's policy: %w", err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("catalog: keep the assigned roles: %w", err)
	}
	return storage.WriteJSON(path, file, 0o600)
}

// ReadAssignment returns what the cluster last assigned. A member without it cannot reach its cluster, so a file that is missing or damaged is an
// error by name.
func ReadAssignment(path string) (*Assignment, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("catalog: %s is missing, so that the node does not know which roles to start: restore the volume", path)
	}
	if err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
	}
	a, err := parseAssignment(content)
	if err != nil {
		return nil, fmt.Errorf("catalog: %s cannot be used (%w): restore the volume", path, err)
	}
	return a, nil
}

func parseAssignment(content []byte) (*Assignment, error) {
	var file assignmentFile
	if err := storage.ParseStrictJSON(content, assignmentVersion, &file); err != nil {
		return nil, err
	}
	a := &Assignment{Drained: file.Drained, ClusterUser: file.ClusterUser}
	var err error
	if a.Roles, err = decode[*clusterv1.RoleAssignment](file.Roles, func() *clusterv1.RoleAssignment { return &clusterv1.RoleAssignment{} }); err != nil {
		return nil, err
	}
	if a.Plugins, err = decode[*clusterv1.PluginRecord](file.Plugins, func() *clusterv1.PluginRecord { return &clusterv1.PluginRecord{} }); err != nil {
		return nil, err
	}
	if len(file.Policy) > 0 && string(file.Policy) != "null" {
		a.Policy = &clusterv1.ClusterPolicy{}
		if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(file.Policy, a.Policy); err != nil {
			return nil, err
		}
	}
	return a, nil
}

func encode[M proto.Message](messages []M) ([]json.RawMessage, error) {
	encoded := make([]json.RawMessage, 0, len(messages))
	for _, message := range messages {
		content, err := protojson.Marshal(message)
		if err != nil {
			return nil, err
		}
		encoded = append(encoded, content)
	}
	return encoded, nil
}

// decode reads messages. Fields that this core does not know are left out: a newer curator may have written them.
func decode[M proto.Message](encoded []json.RawMessage, empty func() M) ([]M, error) {
	messages := make([]M, 0, len(encoded))
	for _, content := range encoded {
		message := empty()
		if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(content, message); err != nil {
			return nil, err
		}
		messages = append(messages, message)
	}
	return messages, nil
}
