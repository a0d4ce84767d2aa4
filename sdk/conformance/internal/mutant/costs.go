package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/sdk/conformance/internal/faults"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// Roles that only some mutants offer: one that listens on a port, and one that wants a power of its host.
const (
	server  = "server"
	steward = "steward"
)

// cost is what some mutants do when they start that is too much, or not theirs to do.
func (r *role) cost() error {
	switch fault {
	case faults.TakesMemory:
		return r.holdAtOnce(288 << 20)
	case faults.ReachesOut:
		file, err := aside()
		if err != nil {
			return err
		}
		return file.Close()
	case faults.SpawnsAnyway:
		return exec.Command("/proc/self/exe", brief).Run()
	case faults.HidesChild:
		command := exec.Command("/proc/self/exe", hidden)
		command.Env = []string{"NOTHING=1"}
		command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		return command.Start()
	case faults.WritesAside:
		if file, err := aside(); err == nil {
			r.kept.files = append(r.kept.files, file)
		}
	case faults.ListensAside:
		listenAside("tcp", "127.0.0.1:0")
	case faults.AbstractSocket:
		listenAside("unix", "@mutant-"+strconv.Itoa(os.Getpid()))
	}
	return nil
}

// aside is a file outside of the role's directories, which has no name any more.
func aside() (*os.File, error) {
	file, err := os.CreateTemp("/var/tmp", "mutant")
	if err != nil {
		return nil, err
	}
	return file, os.Remove(file.Name())
}

// listenAside listens until the process ends, if it may.
func listenAside(network, address string) {
	listener, err := net.Listen(network, address)
	if err != nil {
		logLine("warn", err.Error())
		return
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
}

// used is what the process has used of a processor.
func used() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// hold takes memory, and uses it.
func (r *role) hold(bytes int) {
	taken := make([]byte, bytes)
	for n := 0; n < len(taken); n += os.Getpagesize() {
		taken[n] = 1
	}
	r.kept.memory = append(r.kept.memory, taken)
}

// holdAtOnce takes much memory. A page after another may take a machine two seconds of a processor, which is a fault of its own; in large pages it takes a moment.
func (r *role) holdAtOnce(bytes int) error {
	taken, err := syscall.Mmap(-1, 0, bytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		return err
	}
	_ = syscall.Madvise(taken, syscall.MADV_HUGEPAGE) // where there are none it takes longer
	for n := 0; n < len(taken); n += os.Getpagesize() {
		taken[n] = 1
	}
	r.kept.memory = append(r.kept.memory, taken)
	return nil
}

// leak is what some mutants keep of every time that they are asked how they are.
func (r *role) leak() {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch fault {
	case faults.LeaksFiles:
		if file, err := os.Open(os.DevNull); err == nil {
			r.kept.files = append(r.kept.files, file)
		}
	case faults.LeaksThreads:
		go func() {
			runtime.LockOSThread()
			select {}
		}()
	case faults.LeaksMemory:
		r.hold(1 << 20)
	case faults.ChattersDriven:
		for range 8 {
			logLine("info", strings.Repeat("well ", 400))
		}
	}
}

// fidget does nothing, as fast as it can, while the role hears of its node and has nothing else to do.
func (r *role) fidget() {
	for {
		select {
		case <-r.over:
			return
		default:
		}
		if r.away.Load() {
			time.Sleep(again)
		}
	}
}

// needTrust ends the process if the host is older than the RPC that it calls.
func needTrust(host hostv1.HostServiceClient) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stream, err := host.WatchTrust(ctx, &hostv1.WatchTrustRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) == codes.Unimplemented {
		os.Exit(5)
	}
}

// listen serves a port, and publishes where.
func (r *role) listen() {
	address := ""
	switch fault {
	case faults.NoEndpoint:
		return
	case faults.WrongEndpoint:
		var err error
		if address, err = silent(); err != nil {
			logLine("warn", err.Error())
			return
		}
	default:
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			logLine("warn", err.Error())
			return
		}
		address = listener.Addr().String()
		go func() {
			for {
				conn, err := listener.Accept()
				if errors.Is(err, net.ErrClosed) {
					return
				}
				if err == nil {
					_ = conn.Close()
				}
			}
		}()
	}
	r.status.Update(func(now *rolev1.WatchResponse) *rolev1.WatchResponse {
		next := proto.CloneOf(now)
		next.Endpoints = []*rolev1.Endpoint{{Name: "http", Address: "http://" + address + "/"}}
		return next
	})
}

// silent is an address at which nobody listens. The process keeps its port until it ends, so that nobody else can listen there.
func silent() (string, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return "", err
	}
	bound, err := syscall.Getsockname(fd)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("127.0.0.1:%d", bound.(*syscall.SockaddrInet4).Port), nil
}

// nameMachine asks the host for what the role wants of it, and returns what the role is then.
func nameMachine(host hostv1.HostServiceClient) (rolev1.RoleState, string) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if fault == faults.Oversteps {
		if _, err := host.SetMachineID(ctx, &hostv1.SetMachineIDRequest{MachineId: strings.Repeat("1", 32)}); err != nil {
			logLine("warn", err.Error())
		}
	}
	_, err := host.SetHostname(ctx, &hostv1.SetHostnameRequest{Name: "conformance"})
	switch {
	case status.Code(err) == codes.PermissionDenied && fault == faults.EndsPowerless:
		os.Exit(5)
	case err != nil:
		return broken, err.Error()
	}
	return ready, ""
}
