// Package seal keeps what a node must know before it can open anything else: its keys, its cluster, its phase.
//
// It owns the sealed configuration, one file in system/. The secrets in it are encrypted with a configuration key, which a Sealer seals: File by file
// permissions only, tpm2 by the machine's TPM. Whoever can read the file can read the rest, but nobody can change it unnoticed. The package watches
// and publishes nothing.
//
// A sealed configuration that exists and cannot be read is an error, never a new node.
package seal
