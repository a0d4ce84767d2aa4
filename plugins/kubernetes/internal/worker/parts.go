package worker

import (
	"net/netip"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/plugins/kubernetes/internal/image"
	"github.com/reeveproject/reeve/plugins/kubernetes/internal/machine"
)

// The parts that are not of the plugin's executable, by the names of their files.
const (
	shim = "containerd-shim-runc-v2"
	ctr  = "ctr"
	runc = "runc"
	ptp  = "ptp"
)

// partsNeeded are what a worker cannot do without. CoreDNS is an image that a cluster may have from elsewhere.
var partsNeeded = []string{containerd, shim, ctr, runc, ptp, "host-local", "portmap"}

// findParts looks for the parts in directories, the first one first. What is not there is not among what is found.
func findParts(directories []string) map[string]string {
	found := make(map[string]string)
	for _, name := range partsNeeded {
		if file, err := machine.FindPart(name, directories); err == nil {
			found[name] = file
		}
	}
	for _, directory := range directories {
		file := filepath.Join(directory, image.CoreDNSArchive)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
			found[image.CoreDNSArchive] = file
			break
		}
	}
	return found
}

// bracket is an address as it stands before a port.
func bracket(address netip.Addr) string {
	if address.Is6() {
		return "[" + address.String() + "]"
	}
	return address.String()
}

// mayLowerOOMScore reports whether the process may make the kernel spare others, as pods of some classes ask for.
func mayLowerOOMScore() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false
	}
	return data[unix.CAP_SYS_RESOURCE/32].Effective&(1<<(unix.CAP_SYS_RESOURCE%32)) != 0
}
