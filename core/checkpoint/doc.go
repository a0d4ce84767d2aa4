// Package checkpoint names the steps at which a node may be stopped on its way from its first start to an open volume, so that a test can stop it at
// every one of them.
//
// A step is taken by At, before what it is named after is begun. In the program as it is built for people, At does nothing and reads nothing. Built with the tag
// "failpoints", it ends the process by SIGKILL at the step that REEVE_FAILPOINT names (<step>[:n]: when it is taken for the n-th time), and appends every step to
// the file that REEVE_FAILPOINT_LOG names.
//
// Besides the steps with a name of their own there are two of each file that is replaced: core/storage takes "write:" and the file's name when its draft is
// written, and "written:" and the file's name when it has taken the old one's place for good.
package checkpoint
