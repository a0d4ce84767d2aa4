// Package plugin is one instance of a role: from the stored executable to the last of its processes.
//
// It owns the records, runtime and data directories of instances. The executables are those of plugin/store, user IDs and numbers come from plugin/users, and
// plugin/output keeps what instances write. It watches each instance's process and status. It publishes, per instance, the status that its role states
// (Instance.Status) and its end (Instance.Done).
//
// The life of an instance:
//
//  1. Prepare reads the grants, which must all be known, verifies the executable against its digest, takes the role's next number, and makes the data
//     directory of the role and the runtime directory of the instance, both the property of the role's user. Before anything can run it writes a record,
//     run/instances/<name>.json.
//  2. The caller opens the instance's host socket, for which the Remit says who may come to it: where users are shared, nobody until it has the process.
//  3. Launch makes the instance's control group and starts the process in its sandbox (core/sandbox), which is built from the remit. What is executed is a
//     descriptor of the bytes that were verified, whatever is under the path by now: as root the stored file, which nobody but root can change and roles
//     cannot read, otherwise a sealed copy in memory. The process has a process group of its own, as root the role's user and no further groups, an
//     environment that holds go-plugin's variables and the instance's ID and nothing else, an empty standard input, and as standard error a file,
//     run/instances/<name>.err/err, which as root is alone on a small tmpfs: the kernel bounds it, and the core copies it into the role's log. A file and not a
//     pipe: so the role survives the core. A privileged role has no sandbox, and the core's user.
//  4. go-plugin performs its handshake on standard output, which is a file too, and has done its part: it never sees the log, one hostile line of
//     which would panic it, and keeps no goroutine. What else comes on standard output is thrown away.
//  5. The record is written again, now with the PID and its start time. The core dials the socket that the handshake named, which must be in the runtime
//     directory; at every dial the kernel must confirm that the instance's user and process group listen there.
//  6. RoleService.Start hands over the configuration, which the role may refuse. From then on the instance runs; its status stream is followed and
//     checked. If it fails, the core's own log gets the last lines that it wrote, with the role and the instance as fields.
//  7. It ends, by itself or by Stop: the RPC first, which tells the role why, then SIGTERM to the group, then SIGKILL. The end of its process is seen
//     through a pidfd within milliseconds, whichever way it came; that it was for want of memory, in the control group.
//  8. While the dead leader still holds the group's number, the rest of the group is killed. What had left the process group is in the control group,
//     which is killed and removed. Where there is none, or a role might have left it (as root without a user of its own, or with capabilities), it is found by
//     the user ID, or, where users are shared, by the instance ID in its environment. The runtime directory goes, then the record; data and log stay. Done
//     is closed.
//
// A core that is killed, or leaves its instances, does none of the last two steps. The next one calls Adopt before it launches anything: what runs as its record
// says goes on under the new core, and whatever else is left is found by records, users, environments and control groups, wherever in these steps the
// earlier core had been, and ended. An adopted process is nobody's child here: it is held, signalled and waited for by pidfd.
//
// Describe goes the same way, twice, in a sandbox in which nothing is granted but what an executable that is linked to libraries needs to come as far as to say that it wants
// them: the machine's own loader and libraries.
package plugin
