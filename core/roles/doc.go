// Package roles makes what runs on the node be what should run on it: desired roles become instances.
//
// It owns the instances of the node: one goroutine per role (actor.go) starts, follows, restarts and stops that role's, and the
// Reconciler owns the goroutines. It owns what is kept of the roles' failures (history.go), one file a role. It watches Desired. It publishes
// Instances, the state of every role, and Capabilities, who provides what on this node and the connection to it; and it tells a Recorder
// what happens (events.go).
//
// Everything is level-triggered. A new Desired is turned into a plan (plan.go), which says of every role whether it may run, and if not why
// not; each actor compares its role's part of the newest plan with what it has, and takes the next step. No step depends on the one before it
// having been seen by anybody.
//
// The states of a role and what leads from one to the next:
//
//	Blocked    no process runs: a requirement is missing, not Ready or circular, the node does not run the store that the role uses, or the role is on hold; or a
//	           process runs and says that something outside it is missing
//	Starting   its process is being launched, or runs and has not said that it is Ready, or what keeps it from that
//	Ready      it does its work
//	Degraded   it says that it runs but does not do its work as it should
//	Stopping   it is being stopped: no longer desired, or to be restarted for a change
//	Backoff    it ended by itself or said that it failed; it is started again at a time that is stated
//	Failed     it cannot run until something changes: no such plugin or executable here, it refuses its configuration, or its crash budget is used up
//
// A failure is an end that nobody asked for: the process ended by itself, the launch came to nothing, the role said that it failed, or it was not
// well for too long when it was asked (health.go) and had to be ended. Every failure is on disk before it is shown, so that a core that starts again goes
// on counting. More failures within a window than the role's budget allows make it Failed: it is not started again before what is
// desired of it changes, the machine boots, or Restart is called. What is not the role's fault is not counted: a stop that was due, the end of the
// core, a launch for which the node had no room. Nor are refusals, which make the role Failed at once; they are tried again by the next core, which
// may be one that understands the plugin. They too are shown as its last failure.
//
// Instances that an earlier core launched are shown from the beginning, all at once. With the first plan they are like any other: one that is as it should be
// goes on, one that is not is stopped or restarted. ErrLeave leaves instances to the next core in turn.
//
// A role that its machine keeps Blocked is an instance like any other: it is followed, asked whether it is well, stopped and adopted. It has not failed, and does not meet what
// requires it. It looks again by itself.
//
// What a role requires gates its start only. If what is required restarts, whoever requires it runs on; if it may no longer run at all,
// they are stopped before it, and Blocked. A role that is no longer desired is stopped and then is in nothing that is published.
package roles
