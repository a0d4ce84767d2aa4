// Package seal keeps what a node must know before anything else can be opened: its key, its cluster, how far it has come.
//
// It owns the sealed configuration, one file in system/. How the secrets in it are protected is a Sealer's business; the only one so far is
// File, which protects them by the file's permissions and nothing else. It watches nothing and publishes nothing.
//
// A sealed configuration that is present and cannot be read is an error, never a new node.
package seal
