// Package checkpoint names the steps at which a role may be stopped while it changes what is kept, so that a test can stop it at every one of them.
//
// A role takes a step by Before, when the change that it is named after is about to be made, and by After, when the change is kept. In the plugin as it is built for
// people both do nothing and read nothing. A role's environment is clean; so one that is built with the tag "failpoints" looks, at every step, for the file "failpoint"
// in its data directory. Each of its lines is a point ("before:" or "after:" and the name of a step) and, after a space, how often it is taken until
// the role ends there; without a number once. At such a point the role takes the line out of the file and ends itself by SIGKILL. A test so writes down where a role is to end, also
// while it runs, and reads where it did.
package checkpoint
