// Package volume is what the kinds of volume have in common: the interface behind which they are, the errors by which the node decides, mounts that are
// proven, the search for who has something open, and external programs that are run without telling anybody a key.
//
// A kind owns what is at its location (a device, an image, a directory) and the mount at the data directory. It knows nothing of where keys come from. It
// watches nothing and publishes nothing.
package volume
