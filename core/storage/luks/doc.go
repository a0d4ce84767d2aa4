// Package luks keeps a volume in a LUKS2 container on a block device, with a file system of its own, by cryptsetup.
//
// The container is known by its UUID, which comes from the node's ID, and complete by its label: both are in its header, which can be read without the key. A
// Format that was interrupted is begun again, on a device that is still empty, has the mark of this node at its end, or a header with this node's UUID and not
// yet the label of a complete volume.
//
// The key is 64 random bytes, which nobody can guess however fast guesses are made. So the derivation that makes guessing passphrases slow is turned down: it
// would cost every start of the node a second or more and a gigabyte of memory, and protect nothing.
package luks
