// Package fakecluster is a cluster for the tests of reeve: the cluster API and the own API of nodes, over the real protocol with real TLS and
// real sockets, and behind them nothing but a few records. It owns the listeners that it opens until Close.
package fakecluster
