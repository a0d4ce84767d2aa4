// Package genesis makes and reads the genesis catalog: what the built-in plugins are, by digest, as it was when they were built. A new cluster is made from
// it, so that the executables of a machine on which a cluster begins are those of the build and no others.
//
// It owns the format of the file genesis.json beside the built-in plugins. It watches nothing and publishes nothing.
package genesis
