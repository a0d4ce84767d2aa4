// Package podnet is the network of a node's pods: what connects them with those of other nodes, and with everything else.
//
// A packet from a pod of one node to a pod of another goes over VXLAN. Every node has one device for it, whose hardware address follows from the node's ID: so a node can say where each other one is (its
// address, its pods' ranges) from the cluster's directory alone, by permanent routes, neighbours and entries for forwarding, and nothing is learned or asked for by broadcast. What a node has not been told
// of is not reached: the ranges of all pods are unreachable but for the routes to peers, and packets of the device that come from no peer's address are dropped before they are unpacked. VXLAN does
// neither encrypt nor prove who sends: whoever can forge the address of a peer on the network between the nodes can send to pods.
//
// A pod's interface is a point-to-point link to its node (the CNI plugin ptp, as kind has it), not a port of a bridge. So all that pods send is routed, and passes the node's packet filter, between two
// pods of one node too: services work without br_netfilter, and pods cannot take each other's addresses by ARP. Addresses are given by the CNI plugin host-local, ports of the host by portmap.
// What pods send to anything that is no pod goes out with the node's address (masquerade), by a table of nftables which is this package's alone.
//
// The package owns the interface reeve-pods, the table "inet reeve-kubernetes", the routes of its protocol number, the CNI configuration, and the directory of given addresses. Everything is kept in the
// kernel and in files under fixed names: a process finds what an earlier one left and goes on with it without disturbing pods. One network namespace has the pod network of one node.
//
// It needs the program nft in PATH, and that the machine forwards (Sysctls). It adds no rule that lets forwarded packets pass: where something else drops them (the policy of a chain at the hook
// forward, as Docker or a firewall sets it), whoever did so has to let through what comes from and goes to the ranges of pods.
package podnet
