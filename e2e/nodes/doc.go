// Package nodes tests clusters of several nodes with the real programs: `reeve dev up --nodes 3`, machines that register and are approved, roles that move, nodes that
// are removed.
//
// Its tests run one after another: all clusters use the loopback addresses from 127.0.0.1 on, and the same ports of them.
package nodes
