package listening

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/sdk/event"
	"github.com/reeveproject/reeve/sdk/leaktest"
)

func TestMain(m *testing.M) { leaktest.VerifyTestMain(m) }

type said struct {
	address string
	problem error
}

// An address that somebody else has is taken as soon as it is free, and again when the listener fails.
func TestAddressThatIsTaken(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := taken.Addr().String()
	if l, err := Listen(address, false, func(string, error) {}); !errors.Is(err, unix.EADDRINUSE) {
		t.Fatalf("it waits for the other program: %v, %v", l, err)
	}
	var told event.Value[said]
	l, err := Listen(address, true, func(address string, problem error) { told.Set(said{address, problem}) })
	if err != nil {
		t.Fatal(err)
	}
	if now, _ := told.Get(); now.problem == nil || now.address != "" {
		t.Errorf("told %v", now)
	}
	accepted := make(chan error)
	go func() {
		for {
			conn, err := l.Accept()
			if err == nil {
				err = conn.Close()
			}
			accepted <- err
			if err != nil {
				return
			}
		}
	}()
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := told.Wait(t.Context(), func(now said) bool { return now == said{address: address} }); err != nil {
			t.Fatal(err)
		}
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(<-accepted, conn.Close()); err != nil {
			t.Fatal(err)
		}
		// It fails.
		if err := l.opened().Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := told.Wait(t.Context(), func(now said) bool { return now.problem != nil }); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	if err := <-accepted; !errors.Is(err, net.ErrClosed) {
		t.Errorf("after its end: %v", err)
	}
}

// An address that the machine does not have is listened on as soon as it has it, and told of when it is lost and when it is back, with the same listener.
func TestAddressThatComesAndGoes(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root: a network namespace is made")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The thread is never unlocked, so it ends with this goroutine and takes its namespace along.
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Errorf("unshare: %v", err)
			return
		}
		handle, err := netlink.NewHandle()
		if err != nil {
			t.Error(err)
			return
		}
		defer handle.Close()
		if err := comesAndGoes(handle); err != nil {
			t.Error(err)
		}
	}()
	<-done
}

func comesAndGoes(handle *netlink.Handle) error {
	const host = "192.0.2.7"
	lo, err := handle.LinkByName("lo")
	if err == nil {
		err = handle.LinkSetUp(lo) // where nothing is up the kernel takes every address for one of its own
	}
	if err != nil {
		return err
	}
	var now said
	l, err := listen(host+":0", false, func(address string, problem error) { now = said{address, problem} })
	if err != nil || !errors.Is(now.problem, unix.EADDRNOTAVAIL) {
		return fmt.Errorf("without the address: %w; told %v", err, now)
	}
	address, err := netlink.ParseAddr(host + "/32")
	if err == nil {
		err = handle.AddrAdd(lo, address)
	}
	if err == nil {
		err = l.open()
	}
	if err != nil {
		return err
	}
	has := now
	for range 2 {
		l.look(host)
		if now != has || has.problem != nil {
			return fmt.Errorf("with the address: told %v", now)
		}
		conn, err := net.Dial("tcp", has.address)
		if err != nil {
			return err
		}
		accepted, err := l.Accept()
		if err != nil {
			return err
		}
		if err := errors.Join(conn.Close(), accepted.Close(), handle.AddrDel(lo, address)); err != nil {
			return err
		}
		l.look(host)
		if now.address != "" || !errors.Is(now.problem, unix.EADDRNOTAVAIL) {
			return fmt.Errorf("when it is lost: told %v", now)
		}
		if err := handle.AddrAdd(lo, address); err != nil {
			return err
		}
		l.look(host)
	}
	return l.Close()
}

func TestNoAddress(t *testing.T) {
	t.Parallel()
	if _, err := Listen("nonsense", true, func(string, error) {}); err == nil {
		t.Error("it listens")
	}
}
