// Package keys derives the key of a node's volume from the NUK and the CUK, and holds keys in memory while they are needed.
//
// It owns the file of the wrapped data key in system/. It watches and publishes nothing.
//
//	NUK (node unlock key, in the sealed configuration) ─┐
//	                                                    ├─ HKDF, salted by cluster and node ─► wraps ─► data key ─► volume
//	CUK (cluster unlock key, from one of its sources) ──┘
//
// To rotate either half, the data key is wrapped anew. The data on the volume stays as it is.
//
// A key in memory is a Secret: locked, not in core dumps or child processes, and zeroed by Destroy. Encrypt, Decrypt and Store work in that memory
// and wipe the ciphers' copies. They do not reach what a cipher leaves on a goroutine's stack or in the processor while it works.
package keys
