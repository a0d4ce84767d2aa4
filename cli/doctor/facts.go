package doctor

import (
	"github.com/reeveproject/reeve/proto/address"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// Places are the directories of a node. They need not exist.
type Places struct {
	// Data is where the volume is, or will be. Run holds sockets.
	Data, Run string
	// Network is how the node is reached, as its parameters say it; nil: they say nothing, or are not there.
	Network *nodev1.Network
}

// Facts are what was found on a machine. Errors say why something cannot be read; nil: it can.
type Facts struct {
	UID int
	// Capabilities are the effective ones of the process, a bit for each.
	Capabilities uint64
	// Kernel is its release, such as "6.12.1".
	Kernel string
	// PIDFD and PeerPIDFD: a process can be held, and so can the peer of a socket.
	PIDFD, PeerPIDFD error
	// LandlockABI is 0 where there is none.
	LandlockABI int
	// Seccomp: filters that end the process. NoNewPrivileges: a process can give up gaining privileges.
	Seccomp, NoNewPrivileges error
	// UserNamespaces: this user can make one.
	UserNamespaces error
	Cgroups        Cgroups
	// DMCrypt: dm-crypt is there or can be loaded.
	DMCrypt error
	// Cryptsetup and MakeFilesystem: the programs cryptsetup and mkfs.ext4 are there. Loop: a file can be a block device.
	Cryptsetup, MakeFilesystem, Loop error
	TPM                              TPM
	// OpenFiles is how many files a process may have open, as far as it can raise it by itself.
	OpenFiles uint64
	// Clock: the kernel's clock is kept right by a time service.
	Clock error
	// Systemd says that systemd is what starts services.
	Systemd bool
	Data    Directory
	Run     Directory
	// Addresses are those of the machine, the chosen ones first; AddressesErr is why they are not known. Network is that of Places.
	Addresses    []address.Address
	AddressesErr error
	Network      *nodev1.Network
	// NoInterfaces are the names in network.interfaces that no interface of the machine has.
	NoInterfaces []string
}

// Cgroups are the control groups of the machine.
type Cgroups struct {
	// Mode is "v2", "hybrid" (v1 with a v2 tree that has no controllers), "v1" or "none".
	Mode string
	// Controllers are those of the v2 tree.
	Controllers []string
	// Delegated says that the process may make groups below its own in the v2 tree.
	Delegated bool
	// V1 are the controllers, of cpu, memory and pids, with which the process may make groups below its own in trees of v1.
	V1 []string
}

// TPM is the machine's security chip.
type TPM struct {
	// Version is "2", "1" or empty: there is none.
	Version string
	// Usable: the process can use its device.
	Usable error
}

// Directory is one of a node's directories, or where it will be made.
type Directory struct {
	Path string
	// At is the nearest directory that exists, with links followed: that of the path itself or one above it.
	At string
	// Err says why nothing could be found out of it.
	Err error
	// Writable: the process can write there.
	Writable error
	// Barriers are the directories above it through which not every user can pass.
	Barriers []string
	// Filesystem is its kind, such as "ext4" or "tmpfs".
	Filesystem string
	// FreeBytes and FreeFiles are what an ordinary process may still use. Files is how many there can be; 0: the file system does not count them.
	FreeBytes, FreeFiles, Files uint64
	// NoExec and ReadOnly are how it is mounted.
	NoExec, ReadOnly bool
	// Fscrypt: directories there can be encrypted.
	Fscrypt error
}
