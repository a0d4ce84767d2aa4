// Package confine is what is said between `reeved confine`, which runs one executable in the sandbox in which a node runs a role, and whoever starts it: the conformance
// suite, which must not have a sandbox of its own. Both sides are of one build; what is said is JSON, one document after another. It owns no state.
package confine

import (
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"google.golang.org/protobuf/encoding/protojson"
)

// AnswersFD is the descriptor on which `reeved confine` writes its answers. The standard output is the role's.
const AnswersFD = 3

// Request is what to run. It is written to the standard input, whose end ends everything that was started.
type Request struct {
	// Executable is the file to execute, Digest the one of its bytes ("sha256:" and hex).
	Executable string `json:"executable"`
	Digest     string `json:"digest"`
	// Name is the first argument of the process.
	Name string `json:"name"`
	// Role is the manifest of the role, as JSON of protobuf; RoleManifest and SetRole are for it. It is granted what it wants.
	Role []byte `json:"role"`
	// Own is a directory of the caller's for the whole run: copies of executables and user IDs are kept there.
	Own string `json:"own"`
	// Private are directories that the role may read and write, and that are given to its user; Passages those whose sockets it may connect to.
	Private  []string `json:"private"`
	Passages []string `json:"passages"`
	// Environment is all that there is.
	Environment []string `json:"environment"`
}

// SetRole sets Role.
func (r *Request) SetRole(manifest *rolev1.RoleManifest) (err error) {
	r.Role, err = protojson.Marshal(manifest)
	return err
}

// RoleManifest reads Role.
func (r *Request) RoleManifest() (*rolev1.RoleManifest, error) {
	manifest := &rolev1.RoleManifest{}
	return manifest, protojson.Unmarshal(r.Role, manifest)
}

// Answer is one of three, in this order: Started or Refused, then Ended, then Left.
type Answer struct {
	Started *Started `json:"started,omitempty"`
	Refused *Refused `json:"refused,omitempty"`
	Ended   *Ended   `json:"ended,omitempty"`
	Left    *Left    `json:"left,omitempty"`
}

// Started says that the process runs.
type Started struct {
	// PID is that of the process, which leads a session and a process group, UID its user.
	PID int    `json:"pid"`
	UID uint32 `json:"uid"`
	// Missing is what of the sandbox cannot be enforced on this machine, by the user that asked.
	Missing []Missing `json:"missing,omitempty"`
}

// Missing is a part of a sandbox that cannot be enforced, as a node names it, and why.
type Missing struct {
	Part   string `json:"part"`
	Reason string `json:"reason"`
}

// Refused says why the process does not run.
type Refused struct {
	// Reason is for people. Executable says that the executable is what is wrong, and not the machine.
	Reason     string `json:"reason"`
	Executable bool   `json:"executable"`
}

// Ended says how the process ended.
type Ended struct {
	Code int `json:"code"`
	// Signal is the number of the signal that ended it; 0: none did.
	Signal int `json:"signal"`
}

// Left lists the processes of the role that still ran some seconds after its main process ended. They have been killed.
type Left struct {
	// Processes are their command lines.
	Processes []string `json:"processes,omitempty"`
}
