package store_test

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
)

// unixOnly is set in a process in which there are Unix sockets only.
const unixOnly = "REEVE_TEST_UNIX_ONLY"

// TestUnixSocketsOnly opens and uses a store where the kernel refuses all sockets but Unix ones: the role has given the network up.
func TestUnixSocketsOnly(t *testing.T) {
	if os.Getenv(unixOnly) == "" {
		self := exec.Command(os.Args[0], "-test.run=^TestUnixSocketsOnly$")
		self.Env = append(os.Environ(), unixOnly+"=confine")
		if output, err := self.CombinedOutput(); err != nil {
			t.Fatalf("%v:\n%s", err, output)
		}
		return
	}
	if os.Getenv(unixOnly) == "confine" {
		// Again from its very beginning, since packages begin to work when they are loaded.
		if err := refuseOthers(); err != nil {
			t.Skipf("this process cannot be confined: %v", err)
		}
		t.Setenv(unixOnly, "confined")
		t.Fatal(unix.Exec("/proc/self/exe", os.Args, os.Environ()))
	}
	if socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0); err == nil {
		t.Fatalf("there is a socket of the network: %d", socket)
	}
	directory := storetest.Directory(t)
	for range 2 {
		s, stop := storetest.Open(t, directory, storetest.Plan)
		root := store.Root(storetest.Context(t))
		if _, err := s.Client().Put(root, "/key", "value"); err != nil {
			t.Fatal(err)
		}
		if _, err := storetest.Recover(storetest.Context(t), s); err != nil {
			t.Fatal(err)
		}
		stop()
	}
}

// refuseOthers has the kernel refuse all sockets but Unix ones to this thread and to what it executes.
func refuseOthers() error {
	const number, first = 0, 16 // where seccomp_data has the number of the system call, and the low half of its first argument
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	jump := func(value uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jt: yes, Jf: no}
	}
	filter := []unix.SockFilter{
		load(number),
		jump(unix.SYS_SOCKET, 0, 3),
		load(first),
		jump(unix.AF_UNIX, 1, 0),
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	const setModeFilter, allThreads = 1, 1
	if _, _, failed := unix.RawSyscall(unix.SYS_SECCOMP, setModeFilter, allThreads, uintptr(unsafe.Pointer(&program))); failed != 0 {
		return fmt.Errorf("seccomp: %w", failed)
	}
	return nil
}
