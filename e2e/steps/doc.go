// Package steps changes clusters that take writes all the time. It kills the core, consensus and the curator of nodes before and after each step that they note, while the
// cluster forms, grows, changes its members and users, takes machines in and lets them go. What was acknowledged must be there in the end.
//
// Where network namespaces can be made its tests run side by side, each cluster in a network of its own. Elsewhere they run one after another, and what finds a port taken takes another one.
package steps
