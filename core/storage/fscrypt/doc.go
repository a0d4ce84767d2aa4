// Package fscrypt keeps a volume in a directory that the file system encrypts (https://docs.kernel.org/filesystems/fscrypt.html): the data directory itself,
// or one in a file system that the node makes in a file.
package fscrypt
