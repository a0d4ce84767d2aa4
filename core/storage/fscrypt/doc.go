// Package fscrypt keeps a volume in a directory that the file system encrypts (https://docs.kernel.org/filesystems/fscrypt.html): the data directory
// itself, or a directory in an image file.
package fscrypt
