package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/sys/unix"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

var socketAttempts = map[string]func(*attempt){
	"sockets.consensus": func(a *attempt) {
		for _, path := range a.ways("access") {
			a.rpc("consensus: "+path, func(ctx context.Context) error { return readThrough(ctx, path) })
		}
	},
	"sockets.host": func(a *attempt) {
		for _, path := range a.ways("hosts") {
			a.rpc("host: "+path, func(ctx context.Context) error { return hostThrough(ctx, path) })
		}
	},
	"sockets.role": func(a *attempt) {
		for _, path := range a.ways("plugins") {
			a.rpc("role: "+path, func(ctx context.Context) error { return describeThrough(ctx, path) })
		}
		for _, path := range a.ways("doors") {
			a.rpc("the victim's own: "+path, func(context.Context) error { return connectTo(path) })
		}
	},
	"sockets.node":     nodeSocket,
	"sockets.abstract": abstractSockets,
	"sockets.makes":    makesSockets,
	"sockets.swap":     swapSocket,
	"sockets.swapdir":  swapDirectories,
	"sockets.lend":     lendConnection,
}

// ways are the paths of an argument, directly and through what /proc shows of processes.
func (a *attempt) ways(argument string) []string {
	var all []string
	for _, path := range a.list(argument) {
		all = append(all, path)
		for _, pid := range a.list("pids") {
			all = append(all, "/proc/"+pid+"/root"+path)
		}
	}
	return all
}

func readThrough(ctx context.Context, path string) error {
	if err := connectTo(path); err != nil {
		return err
	}
	conn, err := dial(path)
	if err != nil {
		return err
	}
	defer conn.Close()
	return drop(pb.NewKVClient(conn).Range(ctx, &pb.RangeRequest{Key: []byte(victims), RangeEnd: []byte(victimsEnd)}))
}

func hostThrough(ctx context.Context, path string) error {
	if err := connectTo(path); err != nil {
		return err
	}
	conn, err := dial(path)
	if err != nil {
		return err
	}
	defer conn.Close()
	stream, err := hostv1.NewHostServiceClient(conn).WatchMembership(ctx, &hostv1.WatchMembershipRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	return err
}

func describeThrough(ctx context.Context, path string) error {
	if err := connectTo(path); err != nil {
		return err
	}
	conn, err := dial(path)
	if err != nil {
		return err
	}
	defer conn.Close()
	return drop(rolev1.NewRoleServiceClient(conn).Describe(ctx, &rolev1.DescribeRequest{}))
}

// connectTo connects and reads what comes by itself. A connection that is closed at once is a refusal too.
func connectTo(path string) error {
	if len(path) > 107 {
		return errors.New("the path is too long for a socket")
	}
	conn, err := net.DialTimeout("unix", path, 2*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(300 * time.Millisecond))
	n, err := conn.Read(make([]byte, 1))
	if n == 0 && err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("closed at once: %w", err)
	}
	return nil
}

// nodeSocket tries the API of the node, which is for its operator.
func nodeSocket(a *attempt) {
	for _, path := range a.ways("node") {
		a.try("node API: "+path, connectTo(path))
	}
}

// abstractSockets connects to every abstract socket of the machine that it can learn of.
func abstractSockets(a *attempt) {
	content, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		a.note("read /proc/net/unix", say(err))
	}
	names := a.list("abstract")
	for line := range strings.Lines(string(content)) {
		if fields := strings.Fields(line); len(fields) == 8 && strings.HasPrefix(fields[7], "@") {
			names = append(names, fields[7][1:])
		}
	}
	for _, name := range names {
		a.try("@"+name, connectTo("@"+name))
	}
}

// makesSockets makes sockets where others might take them for theirs.
func makesSockets(a *attempt) {
	for _, directory := range a.list("directories") {
		path := directory + "/hostile"
		listener, err := net.Listen("unix", path)
		if a.try("listen at "+path, err) {
			_ = listener.Close()
		}
		a.try("make a symbolic link in "+directory, os.Symlink("/etc", directory+"/link"))
		_ = os.Remove(directory + "/link")
	}
}

// swapSocket puts a link to another's socket where the core finds the role's, and ends the core's connection, so that it connects again. What comes of it is
// for the test to judge.
func swapSocket(a *attempt) {
	target := a.arguments["target"]
	_ = os.Remove(a.plugin.socket)
	a.note("put a link to "+target+" in place of its own socket", fmt.Sprint(os.Symlink(target, a.plugin.socket)))
	go a.plugin.server.Stop()
}

// swapDirectories puts links in place of directories and files that the core uses on the role's behalf.
func swapDirectories(a *attempt) {
	data, runtime := a.start.GetDataDirectory(), a.start.GetRuntimeDirectory()
	for _, directory := range []string{data, runtime} {
		err := os.Rename(directory, directory+".old")
		if a.try("rename "+directory, err) {
			_ = os.Symlink("/etc", directory)
			_ = os.Remove(directory)
			_ = os.Rename(directory+".old", directory)
		}
	}
	for _, path := range a.list("logs") {
		err := os.Rename(path, path+".old")
		if a.try("rename "+path, err) {
			_ = os.Rename(path+".old", path)
		}
		a.try("open "+path, openFor(path, os.O_RDWR))
	}
	// Its standard error is the log: what can be done to it by that descriptor alone. The log may be cut; another file must not be reached.
	for n := range 3 {
		target, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", n))
		a.note(fmt.Sprintf("descriptor %d", n), target+" "+fmt.Sprint(err))
		if err == nil && strings.HasPrefix(target, "/") && target != "/dev/null" {
			a.try("open the directory of descriptor "+target, openFor(target+"/..", os.O_RDONLY))
		}
	}
	// Descriptors of the core that it should not have: everything above the standard ones at its first instruction is its own by now, so directories and
	// files outside of its own are what is looked for.
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, entry := range entries {
		target, err := os.Readlink("/proc/self/fd/" + entry.Name())
		own := strings.HasPrefix(target, data) || strings.HasPrefix(target, runtime) || strings.HasPrefix(target, "/dev/") || strings.HasPrefix(target, "/proc") ||
			strings.HasPrefix(target, "/sys/fs/cgroup/") // which Go reads by itself

		if err == nil && strings.HasPrefix(target, "/") && !own && len(entry.Name()) < 3 && entry.Name() > "2" {
			a.try("has a descriptor of "+target, nil)
		}
	}
}

// lendConnection sends an open connection of its own, to the store and to the core, to a process of another role: it can, by design, give away what is its
// own, and nothing else. What it tries here is that the store takes such a connection for one of somebody else.
func lendConnection(a *attempt) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	socket, err := a.openStore(ctx)
	if err != nil {
		a.note("open its own part of the store", say(err))
		return
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		a.note("socket", say(err))
		return
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: socket}); err != nil {
		a.note("connect", say(err))
		return
	}
	// Credentials of somebody else, sent along.
	for _, pid := range a.list("pids") {
		var number int
		_, _ = fmt.Sscan(pid, &number)
		rights := unix.UnixCredentials(&unix.Ucred{Pid: int32(number), Uid: 0, Gid: 0})
		a.try("send the credentials of process "+pid, unix.Sendmsg(fd, []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), rights, nil, 0))
	}
	// Descriptors on a connection to the core: they must not stay there. A peer that does not take them sees them closed.
	host, err := net.Dial("unix", a.start.GetHostSocket())
	if err != nil {
		a.note("its own host socket", say(err))
		return
	}
	defer host.Close()
	var refused error
	for range 64 {
		if _, _, refused = host.(*net.UnixConn).WriteMsgUnix([]byte("x"), unix.UnixRights(fd, fd, fd, fd), nil); refused != nil {
			break
		}
	}
	a.note("send 256 descriptors to the core", fmt.Sprint(refused))
}

func openFor(path string, flags int) error {
	file, err := os.OpenFile(path, flags|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	return file.Close()
}
