// Package lab has machines for tests that follow a page of the documentation as somebody does who operates machines.
//
// A machine is a set of namespaces: a root file system of its own, whose programs are the host's with an installed Reeve (`make install`) beside them, and whose /etc,
// /var and /root are its disk; a network interface with an address of its own in a network that only the machines of the lab share; its own processes, host name
// and boot ID. So the paths, addresses and ports of a page are what the page says. The first process of a machine reaps what nobody waits for, does for units what
// `systemctl` asks for, as far as pages use it, and runs commands; when it ends the kernel ends every process of the machine, as a machine does that loses its power.
//
// ssh and scp are there under their names, and go to the first process of the machine with an address. Nothing of a lab is left on the host but its directory, which
// the test removes. It needs root.
package lab
