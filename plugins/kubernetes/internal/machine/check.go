package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// CheckConfig says what a worker needs of its machine.
type CheckConfig struct {
	// Parts are the names of the programs that it runs, and Directories where they may be, the first one first.
	Parts, Directories []string
	// State is a directory on the file system on which the layers of containers will lie; empty: that is not looked at.
	State string
	// Ports are those that it listens at. Leave out what it listens at already.
	Ports []Port
	// IPv6 says that pods have addresses of IPv6.
	IPv6 bool
}

// Port is a port that must be free.
type Port struct {
	// Network is "tcp" or "udp".
	Network string
	Address netip.AddrPort
	// Purpose says to people who will listen there.
	Purpose string
}

// Check says everything that the machine lacks to be a worker, each as a sentence that says what to do, always in the same order; none: it can be one. What has to be tried is tried where nothing is left of
// it: in network and mount namespaces that end with it. Swap is no hindrance with cgroup v2, where pods get none of it (the kubelet's failSwapOn has to be false); with v1 they would.
func Check(ctx context.Context, config CheckConfig) []string {
	var lacks []string
	for _, check := range []func(context.Context, CheckConfig) []string{
		checkRights, checkKernel, checkCgroups, checkFiles, checkParts, checkNFT, checkNetwork, checkOverlay, checkLimits, checkPorts,
	} {
		lacks = append(lacks, check(ctx, config)...)
	}
	return lacks
}

// FindPart returns the path of a program in the first of some directories that has it; fs.ErrNotExist if none has.
func FindPart(name string, directories []string) (string, error) {
	for _, directory := range directories {
		path := filepath.Join(directory, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("the program %s is in none of %s: %w", name, strings.Join(directories, ", "), fs.ErrNotExist)
}

// needed are the capabilities without which pods cannot be made, or not all that Kubernetes promises of them, by their bits.
var needed = map[int]string{
	unix.CAP_CHOWN: "CHOWN", unix.CAP_DAC_OVERRIDE: "DAC_OVERRIDE", unix.CAP_FOWNER: "FOWNER", unix.CAP_FSETID: "FSETID", unix.CAP_KILL: "KILL", unix.CAP_SETGID: "SETGID",
	unix.CAP_SETUID: "SETUID", unix.CAP_SETPCAP: "SETPCAP", unix.CAP_NET_BIND_SERVICE: "NET_BIND_SERVICE", unix.CAP_NET_ADMIN: "NET_ADMIN", unix.CAP_NET_RAW: "NET_RAW",
	unix.CAP_SYS_CHROOT: "SYS_CHROOT", unix.CAP_SYS_PTRACE: "SYS_PTRACE", unix.CAP_SYS_ADMIN: "SYS_ADMIN", unix.CAP_MKNOD: "MKNOD", unix.CAP_SETFCAP: "SETFCAP",
}

func checkRights(context.Context, CheckConfig) []string {
	if os.Geteuid() != 0 {
		return []string{"The node does not run as root: start reeved as root, since pods are made with root's rights."}
	}
	status, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return []string{fmt.Sprintf("The rights of this process cannot be read (%v): mount /proc.", err)}
	}
	has, err := effective(status)
	if err != nil {
		return []string{fmt.Sprintf("The rights of this process cannot be read (%v).", err)}
	}
	var missing []string
	for bit, name := range needed {
		if has&(1<<bit) == 0 {
			missing = append(missing, "CAP_"+name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	return []string{fmt.Sprintf("The process has not all of root's rights: let the machine, or the container that the node runs in, give it %s, and grant the role `privileged`.", strings.Join(missing, ", "))}
}

// effective are the capabilities that a process may use, of its status in /proc.
func effective(status []byte) (uint64, error) {
	for line := range bytes.Lines(status) {
		if value, ok := bytes.CutPrefix(line, []byte("CapEff:")); ok {
			return strconv.ParseUint(string(bytes.TrimSpace(value)), 16, 64)
		}
	}
	return 0, errors.New("the status of the process says nothing of capabilities")
}

var version = regexp.MustCompile(`(\d+)\.(\d+)(?:\.(\d+))?`)

// parseVersion finds the first version in a text; nil if there is none.
func parseVersion(text string) []int {
	match := version.FindStringSubmatch(text)
	if match == nil {
		return nil
	}
	var numbers []int
	for _, field := range match[1:] {
		number, _ := strconv.Atoi(field) // the third may be missing
		numbers = append(numbers, number)
	}
	return numbers
}

// leastKernel is what kube-proxy wants for nftables.
var leastKernel = []int{5, 13, 0}

func checkKernel(context.Context, CheckConfig) []string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return []string{fmt.Sprintf("The kernel does not say what it is (%v).", err)}
	}
	release := unix.ByteSliceToString(name.Release[:])
	if has := parseVersion(release); slices.Compare(has, leastKernel) < 0 {
		return []string{fmt.Sprintf("The kernel is %s, and kube-proxy needs 5.13 or later for services: boot a newer one.", release)}
	}
	return nil
}

// The controllers that the kubelet and runc need. In v2 devices and freezer are no controllers, and always there.
var (
	neededUnified = []string{"cpu", "cpuset", "memory", "pids"}
	neededV1      = []string{"cpu", "cpuacct", "cpuset", "devices", "freezer", "memory", "pids"}
)

func checkCgroups(context.Context, CheckConfig) []string {
	all, err := hierarchies()
	if err != nil {
		return []string{fmt.Sprintf("Control groups cannot be found (%v): mount /proc.", err)}
	}
	if len(all) == 0 {
		return []string{"No control groups are mounted: mount cgroup2 at /sys/fs/cgroup, as systemd does."}
	}
	unified := all[0].unified && len(all) == 1
	var has, lacks []string
	for _, h := range all {
		var found unix.Statfs_t
		if err := unix.Statfs(h.mount, &found); err == nil && found.Flags&unix.ST_RDONLY != 0 {
			lacks = append(lacks, fmt.Sprintf("The control groups at %s are mounted read-only: mount them so that the node may write (`mount -o remount,rw %s`).", h.mount, h.mount))
		}
		if !h.unified {
			has = append(has, h.options...)
			continue
		}
		if text, err := os.ReadFile(filepath.Join(h.mount, "cgroup.controllers")); err == nil && unified {
			has = strings.Fields(string(text))
		}
	}
	needed, hint := neededV1, "mount it below /sys/fs/cgroup, or boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1)"
	if unified {
		needed, hint = neededUnified, "boot a kernel that has it, without cgroup_disable="
	}
	for _, controller := range needed {
		if !slices.Contains(has, controller) {
			lacks = append(lacks, fmt.Sprintf("The control groups have no controller %s: %s.", controller, hint))
		}
	}
	if swap, err := os.ReadFile("/proc/swaps"); err == nil && !unified && bytes.Count(swap, []byte("\n")) > 1 {
		lacks = append(lacks, "Swap is on, and with control groups of v1 pods would use it without a bound: turn it off (`swapoff -a`, and its lines in /etc/fstab), or boot with cgroup v2.")
	}
	return lacks
}

// checkFiles looks for what the kernel shows in files.
func checkFiles(_ context.Context, config CheckConfig) []string {
	var lacks []string
	if err := unix.Access("/proc/sys/net/ipv4/ip_forward", unix.W_OK); err != nil {
		lacks = append(lacks, fmt.Sprintf("The kernel's parameters cannot be written (/proc/sys: %v): mount /proc/sys so that the node may write.", err))
	}
	if kmsg, err := os.OpenFile("/dev/kmsg", os.O_RDONLY|unix.O_NONBLOCK, 0); err == nil {
		_ = kmsg.Close()
	} else {
		lacks = append(lacks, fmt.Sprintf("The kernel's messages cannot be read (%v), by which the kubelet sees who runs out of memory: make the device (`mknod /dev/kmsg c 1 11`), or give it to the container.", err))
	}
	if config.IPv6 {
		if off, err := readSysctl("net/ipv6/conf/default/disable_ipv6"); err != nil {
			lacks = append(lacks, "The kernel has no IPv6, and pods are to have addresses of it: boot without ipv6.disable=1, or give the cluster ranges of IPv4 only.")
		} else if off != "0" {
			lacks = append(lacks, "IPv6 is turned off, and pods are to have addresses of it: set the sysctl net.ipv6.conf.default.disable_ipv6 to 0, or give the cluster ranges of IPv4 only.")
		}
	}
	return lacks
}

func checkParts(_ context.Context, config CheckConfig) []string {
	var lacks []string
	for _, name := range config.Parts {
		if _, err := FindPart(name, config.Directories); err != nil {
			lacks = append(lacks, fmt.Sprintf("The program %s is in none of %s: install it (`make deps-kubernetes` builds it), or name its directory in partsDirectories.", name, strings.Join(config.Directories, ", ")))
		}
	}
	return lacks
}

// checkOverlay mounts an overlay where layers of containers will lie, in a mount namespace that ends with it.
func checkOverlay(_ context.Context, config CheckConfig) []string {
	if config.State == "" || os.Geteuid() != 0 {
		return nil
	}
	err := apart(unix.CLONE_NEWNS, func() error { return mountOverlay(config.State) })
	if err == nil {
		return nil
	}
	if errors.Is(err, unix.ENODEV) {
		return []string{"The kernel has no overlayfs, on which containers have their files: load the module (`modprobe overlay`), or boot a kernel that has it."}
	}
	return []string{fmt.Sprintf("Containers cannot have their files in %s (%v): the node's directory must be on a file system on which overlayfs can write, such as ext4, xfs (with ftype=1) or btrfs.", config.State, err)}
}

func mountOverlay(state string) (err error) {
	// What is mounted here is to be nobody else's.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("a mount namespace of its own: %w", err)
	}
	directory, err := os.MkdirTemp(state, ".overlay-check-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(directory)) }()
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(directory, name), 0o700); err != nil {
			return err
		}
	}
	// With names from the working directory: those of others may have commas and colons. It is that of this thread alone.
	if err := unix.Chdir(directory); err != nil {
		return err
	}
	defer func() { _ = unix.Chdir("/") }()
	if err := unix.Mount("overlay", "merged", "overlay", 0, "lowerdir=lower,upperdir=upper,workdir=work"); err != nil {
		return fmt.Errorf("mount an overlay: %w", err)
	}
	return errors.Join(os.WriteFile("merged/written", nil, 0o600), unix.Unmount("merged", 0))
}

// apart calls do on a thread in namespaces of its own, which end with it.
func apart(namespaces int, do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
		if err := unix.Unshare(namespaces); err != nil {
			done <- fmt.Errorf("a namespace of its own: %w", err)
			return
		}
		done <- do()
	}()
	return <-done
}

// leastFiles is how many files a program of the worker may have open at the least.
const leastFiles = 8192

func checkLimits(context.Context, CheckConfig) []string {
	var lacks []string
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil && files.Max < leastFiles {
		lacks = append(lacks, fmt.Sprintf("A process may have %d files open, and containerd and the kubelet need %d: raise it (LimitNOFILE= of the unit reeved, or `ulimit -Hn`).", files.Max, leastFiles))
	}
	instance, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err == nil {
		_ = unix.Close(instance)
	} else {
		lacks = append(lacks, fmt.Sprintf("Files cannot be watched (%v): raise the sysctl fs.inotify.max_user_instances.", err))
	}
	return lacks
}

// askWithin bounds how long a question to the network or to nft may take.
const askWithin = 30 * time.Second

func checkPorts(ctx context.Context, config CheckConfig) []string {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	var lacks []string
	for _, port := range config.Ports {
		err := listen(ctx, port)
		switch {
		case err == nil:
		case errors.Is(err, unix.EADDRINUSE):
			option := map[string]string{"tcp": "t", "udp": "u"}[port.Network]
			lacks = append(lacks, fmt.Sprintf("The %s port %d at %s is in use, and %s needs it: find by whom (`ss -l%snp sport = :%d`), and stop that.",
				strings.ToUpper(port.Network), port.Address.Port(), port.Address.Addr(), port.Purpose, option, port.Address.Port()))
		default:
			lacks = append(lacks, fmt.Sprintf("%s cannot listen at %s (%v): give the node an address that the machine has.", port.Purpose, port.Address, err))
		}
	}
	return lacks
}

func listen(ctx context.Context, port Port) error {
	var config net.ListenConfig
	if port.Network == "udp" {
		socket, err := config.ListenPacket(ctx, port.Network, port.Address.String())
		if err == nil {
			err = socket.Close()
		}
		return err
	}
	listener, err := config.Listen(ctx, port.Network, port.Address.String())
	if err == nil {
		err = listener.Close()
	}
	return err
}
