// Package genesis makes and reads the genesis catalog: the built-in plugins and their digests at build time. A new cluster starts from it, so its
// executables are those of the build and no others.
//
// It owns the format of genesis.json beside the built-in plugins. It watches and publishes nothing.
package genesis
