// Package volume is what the kinds of volume share: their interface, the errors that the node decides by, verified mounts, the search for processes
// with open files, and external programs that get keys through pipes.
//
// A kind owns its location (a device, an image, a directory) and the mount at the data directory. It does not know where keys come from. It watches
// and publishes nothing.
package volume
