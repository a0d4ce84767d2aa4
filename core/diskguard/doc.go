// Package diskguard keeps a role that fills the node's volume from harming the others.
//
// It owns the reserve: a file that takes room on the volume, and empty files that take inodes where these may run out soon. It removes them when room or inodes run out, so that the consensus store and
// the core can go on. It also owns the list of the roles that must not run since they filled the volume, which is kept on disk. It looks at the free room once a second, and more often when it becomes
// short. Only then does it look into the directories of the roles, where it follows no link, leaves no mount and takes only so long, whatever the role made there. It publishes Full, why which role must
// not run, and tells a Recorder what happened.
//
// A role is only stopped for what it did itself: its data must be a considerable part of the volume, or have grown while room ran out. Where something else
// fills the disk, no role is stopped.
package diskguard
