// Package role is all that a role of a Reeve node needs: Serve makes an executable a plugin that offers roles, and Host is what the node offers to a
// running role.
//
// The life of an instance, which is one role in one process:
//
//  1. The core of the node starts the executable. Serve checks the manifest, performs the go-plugin handshake on standard output and
//     serves reeve.role.v1 on a Unix socket. From then on standard output is standard error.
//  2. The core may call Describe, which answers with the manifest, and end the process. Nothing of the role has run then.
//  3. The core calls Start for one role. CheckConfiguration may refuse the configuration with all its problems, and CheckGrants may refuse
//     the grants. Otherwise Run is called, and the services that Register added begin to answer.
//  4. Run calls Host.Ready when the role does its work, Host.Degraded while it cannot, and publishes addresses and values. The core
//     follows the status with Watch. Beside Run it calls CheckHealth every few seconds, and Metrics when somebody reads the node's metrics.
//     A role that is unhealthy for too long is restarted. Run goes on until its context is done. A Run that returns earlier, with or
//     without an error, or panics, has failed: the process ends with a non-zero status, and the core starts a new one.
//  5. The core calls Stop (or sends SIGTERM). Run's context is done. Run must finish within the grace period; the Host works until it
//     returns. The process ends with status 0.
//
// The core may die and come back at any time. The role does not notice: the values of Host keep their content and follow the new core, and calls wait
// for it until their context ends. Only while the role stops do calls not wait.
//
// An instance has an identity that other instances of the cluster know: Host.Listen and Host.Dial connect two authenticated instances. The key is
// made in the process and stays there. Certificates are requested when first needed, and renewed.
//
// A configuration may be a struct: Configure makes its JSON Schema, and checks documents against it (schema.go); Decode only decodes. Range over the
// changes of Membership, Directory and Network with event.Value's Changes. Logger and Slog write the same log.
//
// The package owns the process's signals (SIGTERM stops, SIGINT and SIGPIPE are ignored), its standard output and the plugin connection. It watches
// the host socket and publishes the role's status to the core.
package role
