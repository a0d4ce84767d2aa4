package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"context"
)

var outliveAttempts = map[string]func(*attempt){
	"outlive.children": outlive,
	"outlive.cgroup":   leaveGroup,
	"outlive.store":    keepStore,
	"outlive.removed":  keepStore,
}

// outlive starts children that are not to be found: sessions of their own, orphans, without the variables of the instance, under another name, with nothing
// open, in other control groups; and a chain of processes that never has the same ID. The role itself ignores SIGTERM and holds its stop.
func outlive(a *attempt) {
	var pids []string
	start := func(what string, environment []string, attributes *syscall.SysProcAttr) {
		pid, err := syscall.ForkExec("/proc/self/exe", []string{"/sbin/init"}, &syscall.ProcAttr{Env: environment, Sys: attributes})
		if err != nil {
			a.note("start "+what, say(err))
			return
		}
		a.note("start "+what, "process "+strconv.Itoa(pid))
		pids = append(pids, strconv.Itoa(pid))
	}
	same := append(os.Environ(), childVariable+"=linger")
	bare := []string{childVariable + "=linger", "PATH=/usr/bin"}
	start("a child", same, &syscall.SysProcAttr{})
	start("a session of its own", same, &syscall.SysProcAttr{Setsid: true})
	start("a process group of its own", bare, &syscall.SysProcAttr{Setpgid: true})
	start("with another environment", bare, &syscall.SysProcAttr{Setsid: true})
	start("as another role's", append(bare, "REEVE_INSTANCE="+a.arguments["instance"]), &syscall.SysProcAttr{Setsid: true})
	start("a chain of processes", []string{childVariable + "=run", fmt.Sprintf("HOSTILE_BEGAN=%d", time.Now().Unix()), "HOSTILE_ENOUGH=" + a.data("enough")}, &syscall.SysProcAttr{Setsid: true})
	a.result.Values["pids"] = strings.Join(pids, " ")
}

// leaveGroup leaves its control group, and makes others.
func leaveGroup(a *attempt) {
	content, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		a.note("read /proc/self/cgroup", say(err))
	}
	own := make(map[string]bool)
	for line := range strings.Lines(string(content)) {
		if fields := strings.SplitN(strings.TrimSpace(line), ":", 3); len(fields) == 3 {
			own[fields[2]] = true
			for controller := range strings.SplitSeq(strings.TrimPrefix(fields[1], "name="), ",") {
				base := "/sys/fs/cgroup/" + controller
				if controller == "" {
					base = "/sys/fs/cgroup/unified"
				}
				for _, path := range []string{base, base + fields[2], base + fields[2] + "/.."} {
					a.try("join "+path, os.WriteFile(path+"/cgroup.procs", []byte("0"), 0))
					if a.try("make a group in "+path, os.Mkdir(path+"/hostile", 0o755)) {
						_ = os.Remove(path + "/hostile")
					}
				}
			}
		}
	}
	for path := range own {
		for _, name := range []string{"memory.max", "pids.max", "cgroup.subtree_control", "cgroup.freeze"} {
			a.try("open "+name, openFor("/sys/fs/cgroup"+path+"/"+name, os.O_WRONLY))
		}
		for _, name := range []string{"memory/%s/memory.limit_in_bytes", "pids/%s/pids.max", "freezer/%s/freezer.state"} {
			name = fmt.Sprintf(name, strings.TrimPrefix(path, "/"))
			a.try("open "+name, openFor("/sys/fs/cgroup/"+name, os.O_WRONLY))
		}
	}
	arguments := cloneArgs{flags: 0x200000000, exitSignal: uint64(unix.SIGCHLD)}
	if fd, err := unix.Open("/sys/fs/cgroup/unified", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
		full := struct {
			cloneArgs
			tids, tidsSize, group uint64
		}{cloneArgs: arguments, group: uint64(fd)}
		pid, err := fork(unix.SYS_CLONE3, pointer(&full), 88)
		if err == nil {
			_, _ = syscall.Wait4(pid, nil, 0, nil)
		}
		a.try("clone3 into the root group", err)
		_ = unix.Close(fd)
	}
}

// keepStore opens a watch and a connection, and goes on using them for as long as it can. The test takes the role away meanwhile; what the connection still gives is
// written into a file of the machine that the test has open, since the role's own directory may go.
func keepStore(a *attempt) {
	e, err := a.store()
	if err != nil {
		a.note("open its own part of the store", say(err))
		return
	}
	log, err := os.Create(a.data("kept"))
	if err != nil {
		a.note("its log", say(err))
		return
	}
	a.result.Values["works"] = "yes"
	go func() {
		for n := 0; ; n++ {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			_, err := e.Put(ctx, &pb.PutRequest{Key: []byte(a.prefix() + "kept"), Value: []byte(strconv.Itoa(n))})
			cancel()
			// A use that nobody answered in time was neither open nor refused.
			if status.Code(err) != codes.DeadlineExceeded {
				_, _ = fmt.Fprintf(log, "%d %v\n", time.Now().UnixMilli(), err == nil)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
}
