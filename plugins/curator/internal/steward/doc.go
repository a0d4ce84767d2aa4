// Package steward does what one curator of the cluster has to do by itself, when others have got as far as it needs: it takes assignments out whose role was to leave
// and has left, and makes nodes Decommissioned that were Decommissioning and have nothing left to end. It removes certificates
// that have expired, and the oldest of many tombstones.
//
// All curators stand for election (store.Campaign), and the one that has won it does all this. It owns nothing but its term: a curator that has lost the election and
// does not know it yet changes nothing, since every change is fenced by the key that the election was won by; what has expired, anybody may sweep. It looks at the cluster through the cache,
// which wakes it, and decides by what the store then holds. It keeps nothing across terms but the time since when a node has been silent, which begins again.
package steward
