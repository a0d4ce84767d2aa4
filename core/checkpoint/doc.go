// Package checkpoint names the steps at which a node may be stopped on its way from its first start to an open volume, so that a test can stop it at
// every one of them.
//
// A step is taken by At, before what it is named after is begun. In the program as it is built for people, At does nothing. Built with the tag "failpoints", it
// ends the process by SIGKILL at the step that REEVE_FAILPOINT names.
package checkpoint
