package role

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
)

// debugged reports whether somebody started the process by hand to debug it: -debug is a plugin's only argument.
func debugged(arguments []string) bool {
	return len(arguments) == 2 && (arguments[1] == "-debug" || arguments[1] == "--debug") && os.Getenv(Handshake.MagicCookieKey) == ""
}

// debugSocket is where a process that was started by hand waits for a node.
type debugSocket struct {
	net.Listener
	directory string
}

// listenToDebug makes the process what the core expects behind the socket: the leader of a process group, by which the core identifies an instance.
func listenToDebug() (*debugSocket, error) {
	// A shell with job control or a debugger has done so already.
	if unix.Getpgrp() != os.Getpid() {
		if err := unix.Setpgid(0, 0); err != nil {
			return nil, fmt.Errorf("make a process group: %w", err)
		}
	}
	directory, err := os.MkdirTemp("", "reeve-debug-") // nobody else can enter it
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("unix", filepath.Join(directory, "plugin.sock"))
	if err != nil {
		_ = os.RemoveAll(directory)
		return nil, err
	}
	return &debugSocket{listener, directory}, nil
}

// remove removes what listenToDebug made.
func (d *debugSocket) remove() {
	_ = d.Close()
	_ = os.RemoveAll(d.directory)
}

// invite prints how to connect a node to the process.
func (d *debugSocket) invite(out io.Writer, p Plugin) {
	fmt.Fprintf(out, "The plugin %s %s waits to be debugged (process %d). To use it in place of a role's own instance, run on this machine:\n\n", p.Name, p.Version, os.Getpid())
	for _, role := range p.Roles {
		fmt.Fprintf(out, "\treeve node role debug self %s %s\n", role.Name, d.Addr())
	}
	fmt.Fprintf(out, "\nThe cluster must have the plugin in its catalog and the node the role, and the node's parameters must say `debug_roles: true`, as those of `reeve dev up` do.\n"+
		"This process runs without a sandbox. Ctrl-C or `kill %d` ends it; then the node starts its own instance again.\n", os.Getpid())
}

// serveDebug serves on a socket what go-plugin would, until end.
func (t *pluginTransport) serveDebug(listener net.Listener) {
	// Standard output and error are unchanged here, so restore must do nothing.
	t.stdio.once.Do(func() {})
	server := t.newServer(nil)
	_ = t.GRPCServer(nil, server)
	if err := server.Serve(listener); err != nil && err != grpc.ErrServerStopped {
		t.log.Error("cannot serve the socket for the node any longer", "error", err)
	}
}
