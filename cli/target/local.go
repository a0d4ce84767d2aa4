package target

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/proto/mountinfo"
)

// ErrNotRunning says that no node serves its API in a dev directory, or at a socket.
var ErrNotRunning = errors.New("no node runs there")

// DialLocal connects to the socket of the node's own API in a dev directory and returns the process that listens there. The process is root's,
// the caller's or that of the directory's owner: another one could only be there to deceive. If nobody listens the error is ErrNotRunning. A reeved that holds the directory
// and does not listen at this moment, since it has just been started, or sealed, or unlocked, is waited for.
func DialLocal(ctx context.Context, dir string) (net.Conn, int, error) {
	return dialHeld(ctx, filepath.Join(dir, "run", "node.sock"), dir)
}

func dialHeld(ctx context.Context, path, dir string) (net.Conn, int, error) {
	for deadline := time.Now().Add(listenPatience); ; {
		conn, pid, err := dialSocket(ctx, path, dir)
		if !errors.Is(err, ErrNotRunning) || !Held(dir) || time.Now().After(deadline) {
			return conn, pid, err
		}
		select {
		case <-ctx.Done():
			return nil, 0, err
		case <-time.After(listenAgain):
		}
	}
}

const (
	// listenPatience is how long a reeved that holds its directory may take to listen: it answers without its volume after a second.
	listenPatience = 5 * time.Second
	// listenAgain is how often it is looked whether it does.
	listenAgain = 20 * time.Millisecond
)

// Held reports whether a reeved holds a dev directory.
func Held(dir string) bool {
	_, held := Holder(dir)
	return held
}

// Holder returns the reeved that holds a dev directory, and whether there is one. The process ID is 0 if it is not one of this PID namespace.
func Holder(dir string) (pid int, held bool) {
	return lockHolder(filepath.Join(dir, "system", lockName))
}

// lockName is the lock of a reeved in its system directory and in its run directory.
const lockName = "lock"

// lockHolder asks the kernel's list of locks: to try a lock would be in the way of a reeved that starts.
func lockHolder(path string) (pid int, held bool) {
	var lock unix.Stat_t
	if err := unix.Stat(path, &lock); err != nil {
		return 0, false
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return 0, false
	}
	devices := []uint64{lock.Dev}
	// On btrfs, stat tells a device of the subvolume, and the list of locks that of the file system, as the list of mounts does.
	if mounts, err := mountinfo.Own(); err == nil {
		if on := mountinfo.On(mounts, path); on != nil {
			devices = append(devices, on.Device)
		}
	}
	is := func(file string) bool {
		return slices.ContainsFunc(devices, func(device uint64) bool {
			return file == fmt.Sprintf("%02x:%02x:%d", unix.Major(device), unix.Minor(device), lock.Ino)
		})
	}
	for line := range strings.Lines(string(locks)) {
		if fields := strings.Fields(line); len(fields) > 5 && fields[1] == "FLOCK" && is(fields[5]) {
			pid, _ := strconv.Atoi(fields[4])
			// Subvolumes of btrfs number their files each for itself.
			if pid > 0 && !hasOpen(pid, path) {
				continue
			}
			return max(pid, 0), true
		}
	}
	return 0, false
}

// hasOpen reports whether a process has a file open, or may have: those of another user's process are not seen.
func hasOpen(pid int, path string) bool {
	file, err := os.Stat(path)
	if err != nil {
		return true
	}
	descriptors := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	names, err := os.ReadDir(descriptors)
	if err != nil {
		return true
	}
	return slices.ContainsFunc(names, func(name os.DirEntry) bool {
		other, err := os.Stat(filepath.Join(descriptors, name.Name()))
		return err == nil && os.SameFile(file, other)
	})
}

// dialSocket connects to the socket of a node's own API. The process that listens is root's, the caller's or that of the owner of trusted, which
// is a directory; empty: the one that holds the socket.
func dialSocket(ctx context.Context, path, trusted string) (net.Conn, int, error) {
	if trusted != "" {
		if err := checkPlace(trusted); err != nil {
			return nil, 0, err
		}
	}
	// D/run is a link, because D itself may be too long for the path of a socket.
	run, err := filepath.EvalSymlinks(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, ErrNotRunning
	}
	if err != nil {
		return nil, 0, err
	}
	if trusted == "" {
		trusted = run
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(run, filepath.Base(path)))
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, 0, ErrNotRunning
	}
	if err != nil {
		return nil, 0, err
	}
	pid, err := checkListener(conn, trusted)
	if err != nil {
		_ = conn.Close()
		return nil, 0, err
	}
	return conn, pid, nil
}

func checkListener(conn net.Conn, dir string) (int, error) {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *unix.Ucred
	var peerErr error
	if err := raw.Control(func(fd uintptr) {
		peer, peerErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if peerErr != nil {
		return 0, fmt.Errorf("who listens on the node's socket: %w", peerErr)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return 0, err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if peer.Uid != 0 && int(peer.Uid) != os.Geteuid() && (!ok || peer.Uid != owner.Uid) {
		return 0, fmt.Errorf("user %d listens on the node's socket, who is not the owner of the directory", peer.Uid)
	}
	return int(peer.Pid), nil
}

// connectLocal makes the connection to the local node of a way, and tries it once so that the reason of a failure is known.
func connectLocal(ctx context.Context, w way) (*grpc.ClientConn, error) {
	dial := dialSocket
	if w.dir != "" {
		dial = dialHeld
	}
	probe, _, err := dial(ctx, w.local(), w.dir)
	if err != nil {
		return nil, localFault(err, w)
	}
	_ = probe.Close()
	return newLocalClient(w.local(), w.dir, grpc.WithChainUnaryInterceptor(adviseUnary(localAdvice)), grpc.WithChainStreamInterceptor(adviseStream(localAdvice)))
}

// NewLocalClient returns a connection to the node of a dev directory that is made when it is needed, and again after it is lost. It may be made before
// the node runs.
func NewLocalClient(dir string) (*grpc.ClientConn, error) {
	return newLocalClient(filepath.Join(dir, "run", "node.sock"), dir)
}

func newLocalClient(path, trusted string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///node.sock", append(options,
		// The kernel is the channel, and has said who listens.
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		receiveLimit(),
		// To try a socket costs nothing, and somebody waits for the node to start.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: 200 * time.Millisecond},
			MinConnectTimeout: time.Second,
		}),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			conn, _, err := dialSocket(ctx, path, trusted)
			return conn, err
		}))...)
}

func localFault(err error, w way) error {
	if fault.CodeOf(err) == fault.Refused {
		return err
	}
	if w.dir == "" {
		return socketFault(err, w.local())
	}
	switch {
	case errors.Is(err, ErrNotRunning):
		if left := runOn(LeftIn(w.dir)); left != "" {
			return fault.New(fault.Unreachable, "no node runs in "+w.dir+left,
				"Run `reeve dev up --dir "+w.dir+"` to start it, which takes them over, or `reeve dev down --dir "+w.dir+"` to stop them.")
		}
		return fault.New(fault.Unreachable, "no node runs in "+w.dir, "Run `reeve dev up --dir "+w.dir+"` to start it.")
	case errors.Is(err, fs.ErrPermission):
		return fault.Wrap(fault.Refused, err, "the node in "+w.dir+" belongs to another user", "Run reeve as that user, or as root.")
	default:
		return fault.Wrap(fault.Unreachable, err, "the node in "+w.dir+" does not answer", "See "+filepath.Join(w.dir, "reeved.log")+".")
	}
}

func socketFault(err error, socket string) error {
	switch {
	case errors.Is(err, ErrNotRunning):
		if left := runOn(Left(filepath.Dir(socket))); left != "" {
			return fault.New(fault.Unreachable, "no node listens at "+socket+left,
				"Start it (`systemctl start reeved` where it is installed): it takes them over. `reeved reap` stops them.")
		}
		return fault.New(fault.Unreachable, "no node listens at "+socket,
			"Start it (`systemctl start reeved` where it is installed), or give another way with --dir, --socket, --address or --context.")
	case errors.Is(err, fs.ErrPermission):
		return fault.Wrap(fault.Refused, err, "the node at "+socket+" belongs to another user",
			"Run reeve as that user or as root, or log in over the network: `reeve login --address HOST:PORT --ca FILE --key FILE`.")
	default:
		return fault.Wrap(fault.Unreachable, err, "the node at "+socket+" does not answer", "See its log.")
	}
}
