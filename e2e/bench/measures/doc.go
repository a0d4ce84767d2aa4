// Package measures is what `make bench` measures. Each measure makes what it needs, a node or a bare part, and leaves nothing behind: no process
// and no file.
//
// All processes are the real executables of bin/, but for the launch, which is measured at core/plugin's Launcher in this process: the part of the core
// that does for one instance everything from the verified executable to the role's first word. The bare parts are in e2e/bench/programs.
//
// What is kept lies on one file system for both sides, a directory below Bed.Work; sockets and records of running processes lie on a tmpfs, as on
// an installed machine.
package measures
