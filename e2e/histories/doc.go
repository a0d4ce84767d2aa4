// Package histories has concurrent clients call the cluster API of three real nodes while processes are killed and the network is cut, and checks that what they were
// answered is linearizable, that no acknowledged write is lost, and that whoever watches sees the newest in the end.
//
// A run is: traffic, a fault, traffic during it, healing, traffic, and then every curator is asked. All runs of a test are on one cluster. `make test` makes a few;
// REEVE_HISTORIES says how many it is to be instead, and REEVE_HISTORIES_SEED repeats the choices of an earlier test. A table of what was found is in var/test/tables.
package histories
