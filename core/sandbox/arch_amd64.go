package sandbox

import "golang.org/x/sys/unix"

const (
	architecture = unix.AUDIT_ARCH_X86_64
	// foreignNumbers is where the system calls of x32 begin.
	foreignNumbers = 0x40000000
)

// System calls that only this architecture has.
var (
	ownKernel = []uintptr{
		unix.SYS_CREATE_MODULE, unix.SYS_GET_KERNEL_SYMS, unix.SYS_QUERY_MODULE, unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT, unix.SYS_USELIB,
		unix.SYS_USTAT, unix.SYS_SYSFS, unix.SYS__SYSCTL, unix.SYS_KEXEC_FILE_LOAD,
	}
	forks = []uintptr{unix.SYS_FORK, unix.SYS_VFORK}
)

// elfMachine and exitCode make a program that exits with status 0.
const elfMachine = 62

var exitCode = []byte{0x31, 0xff, 0xb8, 0xe7, 0, 0, 0, 0x0f, 0x05}
