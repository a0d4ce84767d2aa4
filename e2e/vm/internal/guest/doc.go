// Command guest is the first process of the machines that the tests of e2e/vm start, and nothing else: it makes a small Linux system out of a kernel and two
// disks (modules, mounts, control groups, the loopback interface) and then does what the test says.
//
// It is started twice. In the initramfs, it loads the modules beside it, mounts the system's disk and becomes the program /sbin/init of that. That one mounts the
// rest and starts itself once more as the agent that serves the test, since the first process has to reap what others leave.
package main
