package checkpoint

// The steps of a node that comes into a cluster that there is, besides those of every first start.
const (
	// EnterRegistered keeps that the cluster has a record of the node, and forgets the ticket.
	EnterRegistered Step = "enter-registered"
	// EnterCommitting keeps that the node is approved.
	EnterCommitting Step = "enter-committing"
	// KeepAssignment keeps what the cluster has assigned to a node that it takes in.
	KeepAssignment Step = "keep-assignment"
)

// The steps of a member whose place in the consensus store changes, and of a node that was removed from its cluster.
const (
	// EnterStore keeps that the node has a member of the store.
	EnterStore Step = "enter-store"
	// LeaveStore keeps that it has none any more.
	LeaveStore Step = "leave-store"
	// Disown keeps that the node was removed.
	Disown Step = "disown"
	// EraseKeys erases all that opens the node's volume and proves the node.
	EraseKeys Step = "erase-keys"
	// EraseData removes what the cluster has left on a volume that is not encrypted.
	EraseData Step = "erase-data"
)
