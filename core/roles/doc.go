// Package roles makes what runs on the node be what should run on it: desired roles become instances.
//
// It owns the instances of the node: one goroutine per role (actor.go) starts, follows, restarts and stops that role's, and the
// Reconciler owns the goroutines. It watches Desired. It publishes Instances, the state of every role, and Capabilities, who provides
// what on this node and the connection to it.
//
// Everything is level-triggered. A new Desired is turned into a plan (plan.go), which says of every role whether it may run, and if not why
// not; each actor compares its role's part of the newest plan with what it has, and takes the next step. No step depends on the one before it
// having been seen by anybody.
//
// The states of a role and what leads from one to the next:
//
//	Blocked    something that it requires is not desired, must not run, is not Ready yet, or requires the role itself; or the role is on hold
//	Starting   its process is being launched, or runs and has not said that it is Ready
//	Ready      it does its work
//	Degraded   it says that it runs but does not do its work as it should
//	Stopping   it is being stopped: no longer desired, or to be restarted for a change
//	Backoff    it ended by itself or said that it failed; it is started again at a time that is stated
//	Failed     it cannot run until something changes: no such plugin or executable here, or it refuses its configuration
//
// What a role requires gates its start only. If what is required restarts, whoever requires it runs on; if it may no longer run at all,
// they are stopped before it, and Blocked. A role that is no longer desired is stopped and then is in nothing that is published.
package roles
