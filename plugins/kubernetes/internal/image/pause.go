package image

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// PauseReference is what the pause image is called: that of the container that holds the namespaces of a pod.
const PauseReference = "reeve.internal/pause:1"

// Pause returns the pause image for an architecture, by Go's name.
func Pause(architecture string) (Image, error) {
	executable, err := pause(architecture)
	if err != nil {
		return Image{}, err
	}
	return Program(PauseReference, architecture, "pause", executable), nil
}

// pause returns the program of the pause container, for Linux. It is here as machine code, since a pod has one of them for as long as it lives, and every byte of the smallest program that a
// compiler makes is more than what it has to do:
//
//	sigaction(SIGCHLD, SIG_IGN)              // as the first process of a pod that shares its process namespace it inherits processes: the kernel reaps them
//	sigprocmask(SIG_BLOCK, {SIGINT, SIGTERM})
//	while (sigtimedwait({SIGINT, SIGTERM}, NULL, NULL) < 0)
//		;                                    // EINTR: it was stopped and continued
//	exit(0)
//
// The first process of a namespace does not die of a signal that it does not handle. One that is blocked is kept for it all the same, and waited for: no handler is needed, so neither a stack nor
// a way back from it.
//
// The file has no sections and no symbols. It is mapped as a whole at 0x400000: the headers, then two values that the kernel reads, then the code.
//
//	0x00  ELF header
//	0x40  program header: the file, read and execute
//	0x78  program header: the stack is not executable
//	0xb0  act: struct sigaction {handler = SIG_IGN (1), flags = 0, restorer = NULL, mask = 0}
//	0xd0  set: sigset_t, bits SIGINT-1 and SIGTERM-1 (0x4002)
//	0xd8  the code, where it begins to run
func pause(architecture string) ([]byte, error) {
	var machine, code string
	switch architecture {
	case "amd64":
		machine, code = "3e 00", pauseAMD64
	case "arm64":
		machine, code = "b7 00", pauseARM64
	default:
		return nil, fmt.Errorf("there is no pause image for %s, only for amd64 and arm64", architecture)
	}
	instructions, err := assemble(code)
	if err != nil {
		return nil, err
	}
	size := pauseCode + len(instructions)
	head, err := assemble(fmt.Sprintf(pauseHeaders, machine, fmt.Sprintf("%02x %02x", size&0xff, size>>8)))
	if err != nil {
		return nil, err
	}
	return append(head, instructions...), nil
}

// pauseCode is where the code is in the file.
const pauseCode = 0xd8

// pauseHeaders is the file up to the code. Numbers are little endian. What is filled in is the machine, and twice the size of the file, which is less than 64 KiB.
const pauseHeaders = `
	7f 45 4c 46 02 01 01 00      ; "\x7fELF", 64 bits, little endian, version 1, System V
	00 00 00 00 00 00 00 00      ; padding
	02 00                        ; type: executable, at a fixed address
	%[1]s                        ; machine
	01 00 00 00                  ; version 1
	d8 00 40 00 00 00 00 00      ; where it begins to run
	40 00 00 00 00 00 00 00      ; the program headers are behind this one
	00 00 00 00 00 00 00 00      ; no section headers
	00 00 00 00                  ; flags
	40 00 38 00 02 00            ; size of this header, size of a program header, two of them
	00 00 00 00 00 00            ; sections: none

	01 00 00 00 05 00 00 00      ; PT_LOAD, read and execute
	00 00 00 00 00 00 00 00      ; from the beginning of the file
	00 00 40 00 00 00 00 00      ; to the address 0x400000
	00 00 40 00 00 00 00 00      ; (physical address)
	%[2]s 00 00 00 00 00 00      ; size in the file
	%[2]s 00 00 00 00 00 00      ; size in memory
	00 00 01 00 00 00 00 00      ; aligned to 64 KiB: arm64 may have such pages

	51 e5 74 64 06 00 00 00      ; PT_GNU_STACK, read and write
	00 00 00 00 00 00 00 00
	00 00 00 00 00 00 00 00
	00 00 00 00 00 00 00 00
	00 00 00 00 00 00 00 00
	00 00 00 00 00 00 00 00
	10 00 00 00 00 00 00 00

	01 00 00 00 00 00 00 00      ; act: handler = SIG_IGN
	00 00 00 00 00 00 00 00      ;   flags
	00 00 00 00 00 00 00 00      ;   restorer
	00 00 00 00 00 00 00 00      ;   mask
	02 40 00 00 00 00 00 00      ; set: SIGINT (2) and SIGTERM (15)
`

// pauseAMD64 is the code for amd64. A system call has its number in rax, its arguments in rdi, rsi, rdx and r10, and changes rax, rcx and r11 only.
const pauseAMD64 = `
	b8 0d 00 00 00       ;       mov eax, 13          rt_sigaction(
	bf 11 00 00 00       ;       mov edi, 17            SIGCHLD,
	be b0 00 40 00       ;       mov esi, act           &act,
	31 d2                ;       xor edx, edx           NULL,
	41 ba 08 00 00 00    ;       mov r10d, 8            sizeof(sigset_t))
	0f 05                ;       syscall
	b8 0e 00 00 00       ;       mov eax, 14          rt_sigprocmask(
	31 ff                ;       xor edi, edi           SIG_BLOCK,
	be d0 00 40 00       ;       mov esi, set           &set, (NULL, sizeof(sigset_t) as before)
	0f 05                ;       syscall
	b8 80 00 00 00       ; wait: mov eax, 128         rt_sigtimedwait(
	bf d0 00 40 00       ;       mov edi, set           &set,
	31 f6                ;       xor esi, esi           NULL, (NULL, sizeof(sigset_t) as before)
	0f 05                ;       syscall
	85 c0                ;       test eax, eax        the number of a signal, or an error, which is negative
	78 ee                ;       js wait
	b8 e7 00 00 00       ;       mov eax, 231         exit_group(
	31 ff                ;       xor edi, edi           0)
	0f 05                ;       syscall
`

// pauseARM64 is the code for arm64. A system call has its number in x8, its arguments in x0 to x3, and changes x0 only.
const pauseARM64 = `
	c8 10 80 d2          ;       mov x8, #134         rt_sigaction(
	20 02 80 d2          ;       mov x0, #17            SIGCHLD,
	81 fe ff 10          ;       adr x1, act            &act,
	02 00 80 d2          ;       mov x2, #0             NULL,
	03 01 80 d2          ;       mov x3, #8             sizeof(sigset_t))
	01 00 00 d4          ;       svc #0
	e8 10 80 d2          ;       mov x8, #135         rt_sigprocmask(
	00 00 80 d2          ;       mov x0, #0             SIG_BLOCK,
	c1 fe ff 10          ;       adr x1, set            &set, (NULL, sizeof(sigset_t) as before)
	01 00 00 d4          ;       svc #0
	28 11 80 d2          ; wait: mov x8, #137         rt_sigtimedwait(
	60 fe ff 10          ;       adr x0, set            &set,
	01 00 80 d2          ;       mov x1, #0             NULL, (NULL, sizeof(sigset_t) as before)
	01 00 00 d4          ;       svc #0
	80 ff ff b7          ;       tbnz x0, #63, wait   the number of a signal, or an error, which is negative
	c8 0b 80 d2          ;       mov x8, #94          exit_group(
	00 00 80 d2          ;       mov x0, #0             0)
	01 00 00 d4          ;       svc #0
`

// assemble reads bytes in hexadecimal; behind a semicolon is what they mean.
func assemble(listing string) ([]byte, error) {
	var digits strings.Builder
	for line := range strings.Lines(listing) {
		code, _, _ := strings.Cut(line, ";")
		digits.WriteString(strings.Join(strings.Fields(code), ""))
	}
	return hex.DecodeString(digits.String())
}
