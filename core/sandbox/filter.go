package sandbox

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// The offsets of a system call's fields in a filter's input. Both architectures are little-endian.
const (
	numberAt       = 0
	architectureAt = 4
	argumentsAt    = 16
)

func lowAt(argument int) uint32 { return uint32(argumentsAt + 8*argument) }

// The results of a filter.
var (
	allowed = bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}
	killed  = bpf.RetConstant{Val: unix.SECCOMP_RET_KILL_PROCESS}
	refused = answers(unix.EPERM)
	absent  = answers(unix.ENOSYS)
)

func answers(errno unix.Errno) bpf.RetConstant {
	return bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(errno)}
}

// rule is what a filter does with one system call. If its instructions fall through, the call is allowed.
type rule struct {
	number uintptr
	do     []bpf.Instruction
}

// assemble makes a filter of rules, at most one per system call. A call without a rule is allowed if it is not newer than this filter; newer calls do
// not exist for a role until somebody has reviewed them.
func assemble(rules []rule) ([]unix.SockFilter, error) {
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: architectureAt, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: architecture, SkipTrue: 1},
		killed,
		bpf.LoadAbsolute{Off: numberAt, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: newest, SkipFalse: 1},
		absent,
	}
	if foreignNumbers != 0 { // the other numbering of the same architecture
		program[4], program[5] = bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: foreignNumbers, SkipFalse: 1}, killed
		program = append(program, bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: newest, SkipFalse: 1}, absent)
	}
	rules = slices.Clone(rules)
	slices.SortFunc(rules, func(a, b rule) int { return cmp.Compare(a.number, b.number) })
	for i, r := range rules {
		if len(r.do) > 200 || i > 0 && rules[i-1].number == r.number {
			return nil, fmt.Errorf("the rule for system call %d is too long or duplicate", r.number)
		}
	}
	program = append(program, search(rules)...)
	raw, err := bpf.Assemble(program)
	if err != nil {
		return nil, err
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, instruction := range raw {
		filter[i] = unix.SockFilter{Code: instruction.Op, Jt: instruction.Jt, Jf: instruction.Jf, K: instruction.K}
	}
	return filter, nil
}

// search finds a system call's rule by binary search. The kernel tests a new filter with every number, so the length of the path matters for the
// start time.
func search(rules []rule) []bpf.Instruction {
	if len(rules) > 3 {
		middle := len(rules) / 2
		lower := search(rules[:middle])
		return slices.Concat([]bpf.Instruction{
			bpf.JumpIf{Cond: bpf.JumpLessThan, Val: uint32(rules[middle].number), SkipTrue: 1},
			bpf.Jump{Skip: uint32(len(lower))},
		}, lower, search(rules[middle:]))
	}
	var program []bpf.Instruction
	for _, r := range rules {
		program = append(program, bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(r.number), SkipFalse: uint8(len(r.do)) + 1})
		program = append(program, r.do...)
		program = append(program, allowed)
	}
	return append(program, allowed)
}

// unlessOneOf does something unless an argument is one of the values.
func unlessOneOf(argument int, values []uint32, do bpf.Instruction) []bpf.Instruction {
	program := []bpf.Instruction{bpf.LoadAbsolute{Off: lowAt(argument), Size: 4}}
	for i, value := range values {
		program = append(program, bpf.JumpIf{Cond: bpf.JumpEqual, Val: value, SkipTrue: uint8(len(values) - i)})
	}
	return append(program, do)
}

// ifOneOf does something if an argument is one of the values.
func ifOneOf(argument int, values []uint32, do bpf.Instruction) []bpf.Instruction {
	program := []bpf.Instruction{bpf.LoadAbsolute{Off: lowAt(argument), Size: 4}}
	for _, value := range values {
		program = append(program, bpf.JumpIf{Cond: bpf.JumpEqual, Val: value, SkipFalse: 1}, do)
	}
	return program
}

// ifAny does something if an argument has one of the bits set.
func ifAny(argument int, bits uint32, do bpf.Instruction) []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: lowAt(argument), Size: 4},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: bits, SkipFalse: 1},
		do,
	}
}

// load puts the calling thread and its future children under a filter, and no other thread.
func load(filter []unix.SockFilter) error {
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(filter)
	if errno != 0 {
		return errno
	}
	return nil
}
