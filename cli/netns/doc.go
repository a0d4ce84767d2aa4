// Package netns makes the network of a dev directory whose nodes have a network namespace each, as machines have their own: the namespaces, which `ip netns` shows, a
// bridge of the host, and a pair of interfaces for every node that connects the two.
//
// The package owns what it makes, and knows it again by its name and, the bridge, by the alias that says whose it is. Whatever makes or removes something holds the lock
// that `ip netns` holds as well. All of it needs root.
package netns
