// Package vm tests Reeve on real machines: with LUKS2, a TPM, pure cgroup v2, clocks that are wrong, and boots that are boots. qemu emulates them, without KVM,
// so that the tests run wherever its program does, as any user.
//
// `make vm-test` runs them, and so does `make soak`. They need Debian's packages qemu-system-x86, swtpm, cryptsetup-bin, e2fsprogs and busybox-static on a machine
// of the architecture amd64, and get Debian's kernel for virtual machines with apt-get, without installing it (var/vm keeps it). What is missing is said by the tests
// that are then skipped.
//
// A machine of these tests has three disks: the system's, with Reeve's programs, which is only read; one for /var/lib/reeve, which is not encrypted and has the node's system directory; and one
// that is empty, for the node's volume. It gets its parameters as the owner of a virtual machine would give them, by qemu's firmware configuration. Its first process
// is internal/guest, which does what the test says over a serial port; internal/machine makes and starts all of it.
//
// An emulated processor is some twenty to fifty times slower than this one, and a boot takes ten seconds: a test follows one machine through many checks, and writes
// down how long each step took, and how much of this machine's processors. A guest's clock counts its instructions while it computes, and so passes more slowly than
// this machine's. What waits in the guest, Reeve and these tests, waits by that clock: however much else this machine has to do, nothing is late in the guest.
package vm
