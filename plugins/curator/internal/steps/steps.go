package steps

import (
	"slices"

	"github.com/reeveproject/reeve/sdk/checkpoint"
)

// The transactions that make a change which the audit log keeps, by what it calls them.
const (
	Register, Commit, ApproveNode        checkpoint.Step = "register", "commit", "approve-node"
	AddRole, RemoveRole, RoleLeft        checkpoint.Step = "add-role", "remove-role", "role-left"
	DecommissionNode, NodeDecommissioned checkpoint.Step = "decommission-node", "node-decommissioned"
	DeleteNode, RotateCA                 checkpoint.Step = "delete-node", "rotate-ca"
	ReplaceStoreMember                   checkpoint.Step = "replace-store-member"
	// OtherChange is every other one.
	OtherChange checkpoint.Step = "other-change"
)

// The others.
const (
	// Create writes the first state of a cluster.
	Create checkpoint.Step = "create"
	// Incarnate and NoteRefused keep which start of a core is the node, and which is not.
	Incarnate, NoteRefused checkpoint.Step = "incarnate", "note-refused"
	// PutStatus keeps what a node says of itself, and Beat that it is alive.
	PutStatus, Beat checkpoint.Step = "put-status", "beat"
	// NoteIssued keeps a certificate, and SweepIssued removes those that have expired.
	NoteIssued, SweepIssued checkpoint.Step = "note-issued", "sweep-issued"
	// SweepTickets removes tickets that have expired.
	SweepTickets checkpoint.Step = "sweep-tickets"
	// AppendAudit keeps calls that changed nothing, and TrimAudit removes the oldest.
	AppendAudit, TrimAudit checkpoint.Step = "append-audit", "trim-audit"
	// Campaign stands for the election of the steward.
	Campaign checkpoint.Step = "campaign"
	// AskSnapshot asks a node for a scheduled snapshot, and StoreSnapshot gives the file of one its name.
	AskSnapshot, StoreSnapshot checkpoint.Step = "ask-snapshot", "store-snapshot"
)

// changes are by what the audit log calls them.
var changes = map[string]checkpoint.Step{
	"Register": Register, "Commit": Commit, "ApproveNode": ApproveNode, "AddRole": AddRole, "RemoveRole": RemoveRole, "RoleLeft": RoleLeft,
	"DecommissionNode": DecommissionNode, "NodeDecommissioned": NodeDecommissioned, "DeleteNode": DeleteNode, "RotateCA": RotateCA, "AskSnapshot": AskSnapshot,
	"ReplaceStoreMember": ReplaceStoreMember,
}

// Change is the step of a change, by what the audit log calls it.
func Change(name string) checkpoint.Step {
	if step, ok := changes[name]; ok {
		return step
	}
	return OtherChange
}

// All are all of them.
func All() []checkpoint.Step {
	return slices.Concat(
		[]checkpoint.Step{Register, Commit, ApproveNode, AddRole, RemoveRole, RoleLeft, DecommissionNode, NodeDecommissioned, DeleteNode, RotateCA, ReplaceStoreMember, OtherChange},
		[]checkpoint.Step{Create, Incarnate, NoteRefused, PutStatus, Beat, NoteIssued, SweepIssued, SweepTickets, AppendAudit, TrimAudit, Campaign, AskSnapshot, StoreSnapshot},
	)
}
