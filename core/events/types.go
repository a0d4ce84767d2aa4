package events

import nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"

// Recorder takes events. Record never blocks, fills in sequence and time, and keeps nothing of what it is given.
type Recorder interface {
	Record(event *nodev1.Event)
}

// The types of the events that this package records by itself. docs/reference/events.md lists all of them.
const (
	// CoreStarted: the core runs. Details: version.
	CoreStarted = "CoreStarted"
	// CoreStopping: the core was asked to stop and does.
	CoreStopping = "CoreStopping"
	// MembershipChanged: the membership has another state. Details: from, to, reason.
	MembershipChanged = "MembershipChanged"
	// StoreProblem: something keeps the consensus store from its work, or endangers it. Details: problem.
	StoreProblem = "StoreProblem"
	// StoreRecovered: nothing does any more. Details: problem, as it was.
	StoreRecovered = "StoreRecovered"
	// StoreFollowed: the node follows another store of its cluster from now on, one that was restored or begun again by a survivor. Details: before, now, curator.
	StoreFollowed = "StoreFollowed"
	// StoreRefused: the node refuses a curator of another store than the one that it follows. Details: follows, refused, curator.
	StoreRefused = "StoreRefused"
	// AddressesChanged: the node has other addresses. Details: before, now.
	AddressesChanged = "AddressesChanged"
	// EventsDropped: events were lost since they could not be written to disk in time. Details: count.
	EventsDropped = "EventsDropped"
)

// The types of the events of an encrypted volume.
const (
	// VolumeOpened: the volume was opened. Details: kind, source.
	VolumeOpened = "VolumeOpened"
	// VolumeSealed: the roles were stopped, and the volume is being closed. Details: caller.
	VolumeSealed = "VolumeSealed"
	// KeysRotated: other keys protect the volume. Details: caller, keys.
	KeysRotated = "KeysRotated"
	// Resealed: the node's secrets were sealed anew. Details: caller, registers.
	Resealed = "Resealed"
)
