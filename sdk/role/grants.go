package role

import (
	"maps"

	"github.com/reeveproject/reeve/proto/remit"
)

// AnyPort stands for all TCP ports in GrantListen and GrantConnect: for a role whose ports are configured.
const AnyPort = remit.AnyPort

// What a role may give up: see Role.GivesUp.
const (
	// GiveUpProcesses says that the role starts no other program and no child.
	GiveUpProcesses = remit.GiveUpProcesses
	// GiveUpNetwork says that the role uses Unix sockets only.
	GiveUpNetwork = remit.GiveUpNetwork
)

// GrantListen asks for a TCP port to listen on: a number, or AnyPort. A role that has neither this nor GrantConnect has Unix sockets only. It does not
// allow a connection to that same port: a role that asks its own server how it is does so over a Unix socket in its runtime directory.
func GrantListen(port string) Grant { return grantOf(remit.Listen, "port", port) }

// GrantConnect asks for TCP connections to a port: a number, or AnyPort. UDP, and so the names of other machines, comes with it.
func GrantConnect(port string) Grant { return grantOf(remit.Connect, "port", port) }

// GrantReadPath asks to read a file, or what is below a directory: an absolute path.
func GrantReadPath(path string) Grant { return grantOf(remit.ReadPath, "path", path) }

// GrantWritePath asks to read and change a file, or what is below a directory: an absolute path.
func GrantWritePath(path string) Grant { return grantOf(remit.WritePath, "path", path) }

// GrantExecutePath asks to read and execute a file, or what is below a directory: an absolute path.
func GrantExecutePath(path string) Grant { return grantOf(remit.ExecutePath, "path", path) }

// GrantCapability asks for a capability of Linux, such as "net-bind-service"; remit.Grantable lists those that there are.
func GrantCapability(name string) Grant { return grantOf(remit.Capability, "name", name) }

// GrantLimit asks for other bounds than the node's defaults: memory, processes, open-files, cpu-weight, store-bytes and store-leases, each a number, of bytes
// also with Ki, Mi or Gi.
func GrantLimit(bounds map[string]string) Grant {
	return Grant{Name: remit.Limit, Parameters: maps.Clone(bounds)}
}

// GrantPrivileged asks for no sandbox at all: the role runs as the user of the core. The owner has to approve it by this word.
func GrantPrivileged() Grant { return Grant{Name: remit.Privileged} }

func grantOf(name, parameter, value string) Grant {
	return Grant{Name: name, Parameters: map[string]string{parameter: value}}
}
