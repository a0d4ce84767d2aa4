// Package keeper is the role archive: it looks what snapshots the curator of the node has and which copies there are, copies what is missing, and removes copies that are too many.
package keeper
