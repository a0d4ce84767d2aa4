package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

var fileAttempts = map[string]func(*attempt){
	"files.secrets": func(a *attempt) { a.reach("paths") },
	"files.roles":   func(a *attempt) { a.reach("paths") },
	"files.core":    func(a *attempt) { a.reach("paths") },
	"files.host":    hostFiles,
	"files.handle":  byHandle,
	"files.mode":    changeModes,
}

// reach tries to read, list, change, replace and remove files and directories of others, by their paths and by what /proc shows of processes.
func (a *attempt) reach(argument string) {
	for _, path := range a.ways(argument) {
		a.try("read "+path, readable(path))
		a.try("write "+path, openFor(path, os.O_WRONLY))
		a.try("link to "+path, linkTo(path, a.data("stolen")))
		moved := path + ".taken"
		err := os.Rename(path, moved)
		if a.try("rename "+path, err) {
			_ = os.Rename(moved, path)
		}
	}
}

// readable is nil if a file or directory was opened and holds something that could be read.
func readable(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.IsDir() {
		_, err = file.Readdirnames(1)
		return err
	}
	n, err := file.Read(make([]byte, 1))
	if n == 0 && err != nil {
		return err
	}
	return nil
}

func linkTo(path, name string) error {
	err := os.Link(path, name)
	if err == nil {
		_ = os.Remove(name)
	}
	return err
}

// hostFiles tries what belongs to the machine and not to Reeve.
func hostFiles(a *attempt) {
	for _, path := range []string{
		"/etc/shadow", "/root", "/root/.bashrc", "/home", "/var/log", "/var/lib", "/dev/mem", "/dev/kmsg", "/dev/sda", "/dev/loop-control", "/dev/fuse",
		"/dev/net/tun", "/dev/kvm", "/proc/kcore", "/proc/kallsyms", "/proc/1/environ", "/sys/kernel/debug", "/sys/fs/bpf", "/boot", "/run/systemd",
		"/var/run/docker.sock",
	} {
		err := readable(path)
		if path == "/proc/kallsyms" && err == nil {
			content, _ := os.ReadFile(path)
			if !bytes.Contains(content, []byte("ffffffff")) {
				err = errors.New("shows no address")
			}
		}
		a.try("read "+path, err)
	}
	for _, path := range []string{"/etc", "/tmp", "/var/tmp", "/dev/shm", "/usr/local/bin", "/run", "/", "/dev", "/proc/sys/kernel"} {
		name := filepath.Join(path, "hostile-was-here")
		if a.try("make a file in "+path, os.WriteFile(name, []byte("x"), 0o644)) {
			_ = os.Remove(name)
		}
	}
	for _, path := range []string{
		"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sys/vm/drop_caches", "/proc/sysrq-trigger", "/proc/sys/net/ipv4/ip_forward",
		"/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/unified/cgroup.procs", "/sys/fs/cgroup/memory/cgroup.procs", "/sys/fs/cgroup/pids/cgroup.procs",
		"/etc/hosts", "/etc/passwd", "/etc/ld.so.preload", "/proc/self/uid_map", "/proc/self/oom_score_adj.x",
	} {
		a.try("open "+path+" for writing", openFor(path, os.O_WRONLY))
	}
	content, err := os.ReadFile("/proc/self/oom_score_adj")
	own, _ := strconv.Atoi(strings.TrimSpace(string(content)))
	if err == nil {
		a.try("be the last that the kernel kills for memory", os.WriteFile("/proc/self/oom_score_adj", []byte(strconv.Itoa(max(own-1, -1000))), 0))
	}
}

// byHandle opens files by their handles, past every path.
func byHandle(a *attempt) {
	mount, err := os.Open(a.data())
	if err != nil {
		a.note("open its own directory", say(err))
		return
	}
	defer mount.Close()
	for _, inode := range []uint32{2, 11, 12, 13, 14, 100} {
		var handle [8]byte
		binary.LittleEndian.PutUint32(handle[:], inode)
		fd, err := unix.OpenByHandleAt(int(mount.Fd()), unix.NewFileHandle(1, handle[:]), unix.O_RDONLY)
		if a.try(fmt.Sprintf("open_by_handle_at inode %d", inode), err) {
			_ = unix.Close(fd)
		}
	}
}

// changeModes tries to make files that outlast its rights, or that would give them.
func changeModes(a *attempt) {
	path := a.data("mode")
	_ = os.WriteFile(path, []byte("x"), 0o755)
	defer os.Remove(path)
	a.try("give a file to root", os.Chown(path, 0, 0))
	a.try("make a device", unix.Mknod(a.data("device"), unix.S_IFBLK|0o666, int(unix.Mkdev(8, 0))))
	a.try("make the memory device", unix.Mknod(a.data("device"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 1))))
	a.try("set file capabilities", unix.Setxattr(path, "security.capability", []byte{
		1, 0, 0, 2, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0,
	}, 0))
	a.try("set a trusted attribute", unix.Setxattr(path, "trusted.x", []byte("x"), 0))
}

var processAttempts = map[string]func(*attempt){
	"process.proc":    procFiles,
	"process.trace":   trace,
	"process.memory":  vmReadWrite,
	"process.pidfd":   pidfds,
	"process.signals": signals,
	"process.list":    listProcesses,
}

// procFiles reads what /proc has of other processes.
func procFiles(a *attempt) {
	for _, pid := range a.list("pids") {
		base := "/proc/" + pid + "/"
		for _, name := range []string{"environ", "maps", "auxv", "stack", "syscall", "io", "pagemap", "smaps", "cwd/", "root/", "fd/", "map_files/", "fdinfo/", "ns/net"} {
			a.try("read "+base+name, readable(base+name))
		}
		file, err := os.OpenFile(base+"mem", os.O_RDWR, 0)
		if a.try("open "+base+"mem", err) {
			_ = file.Close()
		}
		for _, name := range []string{"exe", "cwd", "root", "fd/1", "fd/3"} {
			_, err := os.Readlink(base + name)
			a.try("follow "+base+name, err)
		}
		for _, name := range []string{"oom_score_adj", "coredump_filter", "clear_refs", "comm"} {
			a.try("open "+base+name+" for writing", openFor(base+name, os.O_WRONLY))
		}
	}
}

func (a *attempt) processes(do func(name string, pid int)) {
	for _, text := range a.list("pids") {
		if pid, err := strconv.Atoi(text); err == nil {
			do("process "+text, pid)
		}
	}
}

func trace(a *attempt) {
	a.processes(func(name string, pid int) {
		err := unix.PtraceSeize(pid)
		if a.try("PTRACE_SEIZE "+name, err) {
			_ = unix.PtraceDetach(pid)
		}
		a.try("kcmp "+name, system(unix.SYS_KCMP, uintptr(pid), uintptr(os.Getpid()), 0, 0, 0))
		attributes := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})), Config: unix.PERF_COUNT_SW_TASK_CLOCK}
		fd, err := unix.PerfEventOpen(&attributes, pid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if a.try("perf_event_open "+name, err) {
			_ = unix.Close(fd)
		}
		a.try("get_robust_list "+name, system(unix.SYS_GET_ROBUST_LIST, uintptr(pid), uintptr(unsafe.Pointer(new(uintptr))), uintptr(unsafe.Pointer(new(uintptr)))))
		a.try("migrate_pages "+name, system(unix.SYS_MIGRATE_PAGES, uintptr(pid), 0, 0, 0))
		var limit unix.Rlimit
		a.try("prlimit "+name, unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &limit))
		a.try("process_madvise "+name, processMadvise(pid))
	})
}

func processMadvise(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// An address of the other process, where Go's heap begins, and a length.
	vector := [2]uint64{0xc000000000, 4096}
	return system(unix.SYS_PROCESS_MADVISE, uintptr(fd), pointer(&vector), 1, unix.MADV_COLD, 0)
}

func vmReadWrite(a *attempt) {
	a.processes(func(name string, pid int) {
		// Go's heap begins there in every process.
		local := make([]byte, 64)
		mine := []unix.Iovec{{Base: &local[0], Len: 64}}
		theirs := []unix.RemoteIovec{{Base: 0xc000000000, Len: 64}}
		_, err := unix.ProcessVMReadv(pid, mine, theirs, 0)
		a.try("process_vm_readv "+name, err)
		// The same bytes are written back: harmless.
		if err == nil {
			_, err = unix.ProcessVMWritev(pid, mine, theirs, 0)
		} else {
			_, err = unix.ProcessVMWritev(pid, mine, []unix.RemoteIovec{{Base: 1, Len: 1}}, 0)
			if errors.Is(err, unix.EFAULT) {
				err = nil // it was permitted, and there is nothing at that address
			}
		}
		a.try("process_vm_writev "+name, err)
	})
}

func pidfds(a *attempt) {
	a.processes(func(name string, pid int) {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			// A pidfd by itself gives nothing, and is given for every visible process.
			a.note("pidfd_open "+name, say(err))
			return
		}
		defer unix.Close(fd)
		for n := range 10 {
			got, err := unix.PidfdGetfd(fd, n, 0)
			if a.try(fmt.Sprintf("pidfd_getfd %d of %s", n, name), err) {
				_ = unix.Close(got)
			}
		}
		a.try("pidfd_send_signal 0 to "+name, unix.PidfdSendSignal(fd, 0, nil, 0))
	})
}

// signals sends signals that would do nothing: 0 asks whether it could be done. SIGURG is ignored by every program that did not ask for it.
func signals(a *attempt) {
	a.processes(func(name string, pid int) {
		a.try("kill 0 "+name, unix.Kill(pid, 0))
		a.try("kill SIGURG "+name, unix.Kill(pid, unix.SIGURG))
		a.try("tgkill SIGURG "+name, unix.Tgkill(pid, pid, unix.SIGURG))
		if pid != 1 { // -1 is everybody
			a.try("kill the group of "+name, unix.Kill(-pid, 0))
		}
		var info [128]byte
		a.try("rt_sigqueueinfo "+name, system(unix.SYS_RT_SIGQUEUEINFO, uintptr(pid), uintptr(unix.SIGURG), uintptr(unsafe.Pointer(&info[0]))))
		a.try("setpgid "+name, unix.Setpgid(pid, os.Getpid()))
		a.try("setpriority "+name, unix.Setpriority(unix.PRIO_PROCESS, pid, 19))
		a.try("sched_setaffinity "+name, unix.SchedSetaffinity(pid, &unix.CPUSet{1}))
	})
}

// listProcesses looks whether it sees that there are processes of others at all.
func listProcesses(a *attempt) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		a.note("list /proc", say(err))
		return
	}
	seen := make(map[string]bool)
	for _, entry := range entries {
		seen[entry.Name()] = true
	}
	for _, pid := range a.list("pids") {
		var err error
		if !seen[pid] {
			err = errors.New("not in /proc")
		} else if file, openErr := os.Open("/proc/" + pid + "/cmdline"); openErr != nil {
			err = openErr
		} else {
			_, err = io.ReadAll(file)
			_ = file.Close()
		}
		a.try("see what process "+pid+" is", err)
	}
}
