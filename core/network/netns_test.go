package network

import (
	"context"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestFollowsTheKernel runs the room in a network namespace of its own and changes the addresses there.
func TestFollowsTheKernel(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: a network namespace is made")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The thread is never unlocked, so it ends with this goroutine and takes its namespace along. The room runs in this thread.
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Errorf("unshare: %v", err)
			return
		}
		// A handle keeps the namespace in which it was made, whoever uses it.
		handle, err := netlink.NewHandle()
		if err != nil {
			t.Error(err)
			return
		}
		defer handle.Close()
		link := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "reeve0"}}
		if err := handle.LinkAdd(link); err != nil {
			t.Errorf("link: %v", err)
			return
		}
		room := New(Config{Log: hclog.NewNullLogger()})
		runCtx, stop := context.WithCancel(ctx)
		changed := make(chan struct{})
		go func() {
			defer close(changed)
			defer stop()
			change(t, handle.AddrAdd, link, "192.0.2.7/24")
			expect(ctx, t, room, "192.0.2.7")
			change(t, handle.AddrAdd, link, "198.51.100.1/24")
			expect(ctx, t, room, "192.0.2.7", "198.51.100.1")
			change(t, handle.AddrDel, link, "192.0.2.7/24")
			expect(ctx, t, room, "198.51.100.1")
		}()
		if err := room.Run(runCtx); err != nil {
			t.Errorf("run: %v", err)
		}
		<-changed
	}()
	<-done
}

func change(t *testing.T, do func(netlink.Link, *netlink.Addr) error, link netlink.Link, address string) {
	parsed, err := netlink.ParseAddr(address)
	if err != nil {
		t.Error(err)
		return
	}
	if err := do(link, parsed); err != nil {
		t.Errorf("%s: %v", address, err)
	}
}

func expect(ctx context.Context, t *testing.T, room *Room, want ...string) {
	if _, err := room.Addresses().Wait(ctx, func(a []string) bool { return slices.Equal(a, want) }); err != nil {
		current, _ := room.Addresses().Get()
		t.Errorf("never %v: %v (now %v)", want, err, current)
	}
}
