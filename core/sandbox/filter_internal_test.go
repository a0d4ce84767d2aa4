package sandbox

import (
	"encoding/binary"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/inorder"
	"github.com/reeveproject/reeve/proto/remit"
)

// decide runs a filter as the kernel does. The machine of the library reads numbers with their first byte first.
func decide(t *testing.T, filter []unix.SockFilter, architecture, number uint32, arguments ...uint32) uint32 {
	t.Helper()
	raw := make([]bpf.RawInstruction, len(filter))
	for i, f := range filter {
		raw[i] = bpf.RawInstruction{Op: f.Code, Jt: f.Jt, Jf: f.Jf, K: f.K}
	}
	program, ok := bpf.Disassemble(raw)
	if !ok {
		t.Fatal("the filter has instructions that nobody knows")
	}
	machine, err := bpf.NewVM(program)
	if err != nil {
		t.Fatal(err)
	}
	call := make([]byte, 64)
	binary.BigEndian.PutUint32(call[numberAt:], number)
	binary.BigEndian.PutUint32(call[architectureAt:], architecture)
	for i, argument := range arguments {
		binary.BigEndian.PutUint32(call[lowAt(i):], argument)
	}
	verdict, err := machine.Run(call)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(verdict)
}

// TestFilter goes through every number there is: which are refused whatever they are asked for is what docs/reference/sandbox.md says.
func TestFilter(t *testing.T) {
	for name, p := range inorder.Of(map[string]Policy{
		"confined": {}, "clock": {Remit: remit.Remit{Capabilities: []string{"sys-time"}}}, "ends with core": {EndsWithCore: true},
		"gives up": {GivesUp: []string{remit.GiveUpProcesses}}, "network": {Remit: remit.Remit{Connect: remit.Ports{Numbers: []uint16{1}}}},
	}) {
		t.Run(name, func(t *testing.T) {
			filter, err := filterFor(p)
			if err != nil {
				t.Fatal(err)
			}
			want := map[uint32]bpf.RetConstant{unix.SYS_CLONE3: absent, unix.SYS_SOCKET: refused, unix.SYS_SOCKETPAIR: refused, unix.SYS_PERSONALITY: refused}
			for _, group := range denied() {
				for _, number := range group.calls {
					if group.reopenedBy == "" || !p.has(group.reopenedBy) {
						want[uint32(number)] = refused
					}
				}
			}
			if p.noProcesses() {
				want[unix.SYS_CLONE], want[unix.SYS_MEMFD_CREATE] = refused, refused
				for _, number := range forks {
					want[uint32(number)] = refused
				}
			}
			for number := range uint32(newest + 200) {
				expected, listed := want[number]
				switch {
				case number > newest:
					expected = absent
				case !listed:
					expected = allowed
				}
				if got := decide(t, filter, architecture, number); got != expected.Val {
					t.Errorf("system call %d: %#x, want %#x", number, got, expected.Val)
				}
			}
			const i386, arm = 0x40000003, 0x40000028
			for _, foreign := range []uint32{i386, arm, architecture ^ 1} {
				if got := decide(t, filter, foreign, unix.SYS_GETPID); got != killed.Val {
					t.Errorf("architecture %#x: %#x", foreign, got)
				}
			}
		})
	}
}
