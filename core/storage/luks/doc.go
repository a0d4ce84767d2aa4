// Package luks keeps a volume in a LUKS2 container on a block device, with its own file system, by cryptsetup.
//
// The node's ID gives the container its UUID. The label says whether it is complete. Both are in the header, which needs no key to read. An
// interrupted Format is repeated on a device that is still empty, has this node's mark at its end, or has a header with this node's UUID but not yet
// the label of a complete volume.
//
// The key is 64 random bytes, which nobody can guess. The slow derivation that protects passphrases is turned down: it would cost each start of the
// node a second and a gigabyte of memory, and protect nothing.
package luks
