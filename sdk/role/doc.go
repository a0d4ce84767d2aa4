// Package role is all that a role of a Reeve node needs: Serve turns an executable into a plugin that offers roles, and Host is what the
// node offers to the role that runs.
//
// The life of an instance, which is one role in one process:
//
//  1. The core of the node launches the executable. Serve checks the manifest, performs the go-plugin handshake on standard output and
//     serves reeve.role.v1 on a Unix socket. From then on standard output is standard error.
//  2. The core may call Describe, which answers with the manifest, and end the process: nothing of the role has run.
//  3. The core calls Start for one role. CheckConfiguration may refuse the configuration, with all that is wrong with it, and CheckGrants what
//     the role is granted; otherwise Run is called, and the services that Register added begin to answer.
//  4. Run calls Host.Ready when the role does its work, Host.Degraded while it cannot, and shows addresses and values to others. The core
//     follows it all by Watch. Beside Run it calls CheckHealth every few seconds, and Metrics when somebody reads the node's metrics: a role that is
//     not well for too long is ended and started again. Run goes on until its context is done: a Run that returns earlier has failed, with
//     an error or without, and so has one that panics. The process then ends with a non-zero status, and the core starts a new one.
//  5. The core calls Stop (or sends SIGTERM). Run's context is done; what Run still has to do it must do within the grace period, and the
//     Host works until it has returned. The process ends with status 0.
//
// The core may die and come back in the middle of it. The role does not notice: the values of Host keep what they hold and follow
// the new core when it is there, and calls wait for it as long as their context lets them; only a role that is being stopped does not wait.
//
// An instance has an identity that other instances of the cluster know: Host.Listen and Host.Dial connect two of them, and only those that are meant. Its
// key is made in the process and stays there; certificates are asked for when they are first needed, and renewed.
//
// A configuration may be a struct of the author's: Configure makes its JSON Schema, and checks by it what the role is started with (schema.go); Decode alone only
// decodes. What Membership, Directory and Network hold can be ranged over as it changes (event.Value's Changes). Logger and Slog write the same log.
//
// The package owns the process's signals (SIGTERM stops, SIGINT and SIGPIPE are ignored), its standard output and the plugin connection. It
// watches the host socket; it publishes the role's status to the core.
package role
