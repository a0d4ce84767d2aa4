// Package recovery keeps everything that opens a node's volume in a file that only the owner's recovery key opens (age,
// https://age-encryption.org/v1).
//
// It owns the recovery file in system/. The core only writes it. Whoever has the recovery key decrypts it, on any machine, and gives the content to
// the core.
package recovery
