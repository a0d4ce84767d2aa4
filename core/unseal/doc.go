// Package unseal takes a node from its parameters to an open volume: through its first start, through every later one, and back when it is sealed.
//
// It owns the sealed configuration, the wrapped data key, the recovery file and the sealed CUK in system/, and is the only one that formats, opens and closes
// the volume. It watches the cluster's policy for the sources of the CUK. It publishes the StorageStatus, and the number of this start of the core.
//
// Each step on the way has a name (core/checkpoint), changes one file or the volume, and does nothing that it has done already when it is taken again. A node
// that was stopped anywhere goes on where it was: how far it has come is the phase in the sealed configuration.
//
//	made        keys are in the sealed configuration ─► volume-key.json, recovery.age, cuk.json
//	formatting  the volume is formatted, opened and marked as this node's: in this phase only
//	forming …   the CUK and the data key are in the sealed configuration no more; the CUK comes from one of its sources. Of a node that registers, the CUK
//	            stays there until the cluster has it, and the volume is opened by that
//
// What is there and cannot be read is never taken for what is not there: nothing is formatted then, and where there is a recovery file the node waits for what
// is in it.
package unseal
