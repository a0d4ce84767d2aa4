// Package machine starts real machines for the tests of e2e/vm: qemu without KVM, Debian's kernel, a TPM made of software, and a system that consists of Reeve's
// programs, cryptsetup, the makers of file systems and a first process of the tests' own (../guest).
//
// What machines are made of is a Base: it is made once for all tests of a run, out of programs that are on this machine and of a kernel package that apt-get
// gets without installing it. A Machine is the disks and the TPM of one machine; Boot switches it on, and what comes of it is a Guest, to which the test speaks.
// Nothing here needs root.
package machine
