// Package network knows the addresses of the node.
//
// It watches the kernel's addresses and routes (netlink), unless the parameters name the addresses, and publishes the list: the preferred
// address first. It publishes nothing before there is an address. What an overlay (VXLAN) has is not among them: it is made of those.
package network
