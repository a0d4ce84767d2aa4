// Package steps changes clusters that take writes all the time. It kills the core, consensus and the curator of nodes before and after each step that they note, while the
// cluster forms, grows, changes its members and users, takes machines in and lets them go. What was acknowledged must be there in the end.
//
// Its tests run one after another, as those of e2e/nodes do, and beside those. As root each of the two packages has a network of its own; without, what finds a port taken takes
// another one.
package steps
