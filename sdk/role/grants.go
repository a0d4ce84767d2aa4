package role

import (
	"maps"

	"github.com/reeveproject/reeve/proto/remit"
)

// AnyPort means all TCP ports in GrantListen and GrantConnect, for a role whose ports are configured.
const AnyPort = remit.AnyPort

// What a role may give up: see Role.GivesUp.
const (
	// GiveUpProcesses says that the role starts no other program and no child process.
	GiveUpProcesses = remit.GiveUpProcesses
	// GiveUpNetwork says that the role only uses Unix sockets.
	GiveUpNetwork = remit.GiveUpNetwork
)

// GrantListen asks for a TCP port to listen on: a number, or AnyPort. A role with neither this nor GrantConnect only has Unix sockets. It does not
// allow connecting to that port: a role checks its own server over a Unix socket in its runtime directory.
func GrantListen(port string) Grant { return grantOf(remit.Listen, "port", port) }

// GrantConnect asks for TCP connections to a port: a number, or AnyPort. It includes UDP, and so DNS.
func GrantConnect(port string) Grant { return grantOf(remit.Connect, "port", port) }

// GrantReadPath asks to read a file, or everything below a directory: an absolute path.
func GrantReadPath(path string) Grant { return grantOf(remit.ReadPath, "path", path) }

// GrantWritePath asks to read and change a file, or everything below a directory: an absolute path.
func GrantWritePath(path string) Grant { return grantOf(remit.WritePath, "path", path) }

// GrantExecutePath asks to read and execute a file, or everything below a directory: an absolute path.
func GrantExecutePath(path string) Grant { return grantOf(remit.ExecutePath, "path", path) }

// GrantCapability asks for a Linux capability, such as "net-bind-service"; remit.Grantable lists them.
func GrantCapability(name string) Grant { return grantOf(remit.Capability, "name", name) }

// GrantLimit asks for other limits than the node's defaults: memory, processes, open-files, cpu-weight, store-bytes and store-leases. Each is a
// number; bytes may have the suffix Ki, Mi or Gi.
func GrantLimit(bounds map[string]string) Grant {
	return Grant{Name: remit.Limit, Parameters: maps.Clone(bounds)}
}

// GrantPrivileged asks for no sandbox at all: the role runs as the core's user. The owner has to approve it by this word.
func GrantPrivileged() Grant { return Grant{Name: remit.Privileged} }

func grantOf(name, parameter, value string) Grant {
	return Grant{Name: name, Parameters: map[string]string{parameter: value}}
}
