// Package keeper is the role hostsfile: it keeps a block with the nodes of the cluster's directory in a hosts file, and names the machine if it is
// configured to.
//
// It owns that block and nothing else of the file. It watches the directory and the node's own addresses, and looks at the file now and then; it
// publishes whether everything is as it should be, and which files are written in place.
package keeper
