// Package keeper keeps a block with the nodes of the cluster's directory in a hosts file: the role hostsfile.
//
// It owns that block and nothing else of the file. It watches the directory and looks at the file now and then; it publishes whether the file is
// as it should be.
package keeper
