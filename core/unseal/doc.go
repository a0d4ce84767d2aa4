// Package unseal takes a node from its parameters to an open volume: through its first start, through every later one, and back when it is sealed.
//
// It owns the sealed configuration, the wrapped data key, the recovery file and the sealed CUK in system/, and is the only one that formats, opens and closes
// the volume. It watches nothing; it publishes the StorageStatus.
package unseal
