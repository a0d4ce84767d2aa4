package role

import (
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// StopReason is why a role was asked to stop. What it leaves on the machine may depend on it.
type StopReason int32

const (
	// StopUnknown says that nobody gave a reason: somebody sent a signal, or the role was not asked to stop.
	StopUnknown StopReason = iota
	// StopRemoved says that the role was removed from this node. It should clean up outside its directories.
	StopRemoved
	// StopRestart says that the role is started again at once, with another configuration, remit or version, or because somebody asked for it.
	StopRestart
	// StopNode says that the node stops or holds the role back. The role will run again.
	StopNode
)

// String is the reason for people.
func (r StopReason) String() string {
	switch r {
	case StopRemoved:
		return "removed"
	case StopRestart:
		return "restart"
	case StopNode:
		return "node"
	}
	return "unknown"
}

func stopReasonOf(reason rolev1.StopReason) StopReason {
	switch reason {
	case rolev1.StopReason_STOP_REASON_REMOVED:
		return StopRemoved
	case rolev1.StopReason_STOP_REASON_RESTART:
		return StopRestart
	case rolev1.StopReason_STOP_REASON_NODE:
		return StopNode
	}
	return StopUnknown
}

// StopReason is why the role was asked to stop. It is known when Run's context is done, and StopUnknown before.
func (h *Host) StopReason() StopReason { return StopReason(h.stopped.Load()) }
