// Package keys makes the key of a node's volume out of the two halves that open it, and keeps keys in memory as long as they are of use.
//
// It owns the file of the wrapped data key in system/. It watches nothing and publishes nothing.
//
//	NUK (node unlock key, in the sealed configuration) ─┐
//	                                                    ├─ HKDF, salted by cluster and node ─► wraps ─► data key ─► volume
//	CUK (cluster unlock key, from one of its sources) ──┘
//
// Either half is rotated by wrapping the data key anew; what is on the volume stays as it is.
//
// A key in memory is a Secret: locked, in no core dump, in no child process, zeroed when it is destroyed. Encrypt, Decrypt and Store work on it where it is, and
// zero what the ciphers took of it. What they do not reach is what the ciphers have on a goroutine's stack or in the processor while they work.
package keys
