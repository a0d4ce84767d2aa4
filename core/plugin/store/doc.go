// Package store keeps the executables of a node's plugins by digest, and checks what plugins say of themselves.
//
// It owns the directory of executables. Open hands out the bytes that it has hashed, by a descriptor: what is under the path later does not matter.
// CheckManifest and Compare check manifests, ManifestOf and Digest find in the catalog's record of a plugin what is for a role and for this platform.
package store
