// Package seal keeps what a node must know before anything else can be opened: its keys, its cluster, how far it has come.
//
// It owns the sealed configuration, one file in system/. What is secret in it is encrypted by a configuration key, which a Sealer seals: File by the
// permissions of the file and nothing else, tpm2 by the machine's TPM. The rest of it can be read by anybody who can read the file, and by nobody be changed
// unseen. It watches nothing and publishes nothing.
//
// A sealed configuration that is present and cannot be read is an error, never a new node.
package seal
