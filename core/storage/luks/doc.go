// Package luks keeps a volume in a LUKS2 container on a block device, with a file system of its own, by cryptsetup.
package luks
