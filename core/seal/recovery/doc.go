// Package recovery keeps all that opens a node's volume in a file that only the owner's recovery key opens (age, https://age-encryption.org/v1).
//
// It owns the recovery file in system/. The core only ever writes it: it is decrypted by whoever has the recovery key, on whatever machine, and the core is given
// what was in it.
package recovery
