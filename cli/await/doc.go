// Package await waits until a node meets conditions, and reports on the way what it waits for, for how long, and the present state.
//
// What may be waited for are Conditions: the state of a role, the membership, the volume, the health. What is known of the node comes from Sources, the cluster API and
// the node's own. A condition may also say that it will not become so, such as when a role is Failed: the wait then ends with the cause in place
// of a time-out. The package owns the goroutines that it starts; For returns when they have ended.
package await
