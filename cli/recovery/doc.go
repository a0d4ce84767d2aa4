// Package recovery is the owner's side of recovery: it makes recovery keys (age identities, https://age-encryption.org/v1), reads them, and opens with one the
// recovery file that a node keeps, so that a locked node gets back what is in it.
//
// A recovery key is read from a file or a stream, never from the command line or the environment, and is never sent anywhere: the file of the node comes
// here, and only what was in it goes back, over the node's local socket. What the package holds of secrets it overwrites when it is done with them; what
// the libraries below it copied stays until the process ends, which is why Guard keeps that out of core dumps.
//
// The package owns no state. Its errors are fault.Errors, and never repeat anything of a key.
package recovery
