// Package checkpoint names the steps at which a role changes persistent state, so that a test can stop it at each of them.
//
// A role calls Before when the change is about to be made, and After when it is persisted. In a normal build both do nothing and read nothing. A
// role's environment is clean, so a build with the tag "failpoints" reads, at every step, the file "failpoint" in its data directory. Each line is a
// point ("before:" or "after:" and the step's name) and, after a space, at which occurrence the role ends there; without a number, the first. There
// the role removes the line and kills itself with SIGKILL. So a test can write down where a role must end, even while it runs, and see where it did:
// role and test hold a lock of the directory (flock) while they replace the file. The role writes each point that it comes to into the file
// "failpoint-passed", once for each of its processes, so that a test can see whether it stopped the role at all of them.
package checkpoint
