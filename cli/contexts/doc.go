// Package contexts keeps what reeve knows of the clusters that a person works with, in that person's configuration directory:
//
//	config.json           the contexts: by name, how a cluster is reached, whom to believe there, and which one is meant
//	lock                  held while config.json is changed
//	sessions/NAME.json    the session of a context: its private key and the certificates for it
//	sessions/NAME.lock    held while that session is changed, also over the call that renews it
//
// The directories are 0700 and the files 0600. A file is replaced in one step and is on the disk when the call returns; it names the version of its
// format, and one of a later version, or one that was damaged, is an error and is never written over. Several processes may use the directory
// at once: what is changed is read again under the lock.
//
// The package owns these files; it watches nothing and connects to nobody. Its errors are fault.Errors.
package contexts
