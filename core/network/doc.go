// Package network knows the addresses of the node, and where others may be.
//
// It watches the kernel's interfaces, addresses and routes (netlink), unless the parameters name the addresses, and publishes those that package address chooses: the preferred
// one first, which it keeps in a file and leaves the first one for as long as the machine has it. It publishes nothing before there is an address.
//
// It also keeps the peers: the machines on which an operator says that other nodes may be.
package network
