// Package hostfile says which files of the machine a role may have replaced (the grant "replace-file"), and why not. The core asks it at every call,
// and the commands that set a node up ask it before there is a cluster. It owns no state.
package hostfile
