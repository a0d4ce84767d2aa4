package machine_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/sdk/leaktest"
)

func TestMain(m *testing.M) { leaktest.VerifyTestMain(m) }

const patience = 2 * time.Minute

// apart calls a function on a thread in namespaces of its own, which end with it. It skips the test where none can be made.
func apart(t *testing.T, namespaces int, do func() error) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not run: needs root, since namespaces are made")
	}
	made, done := make(chan error, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
		err := unix.Unshare(namespaces)
		if err == nil && namespaces&unix.CLONE_NEWNS != 0 {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		made <- err
		if err == nil {
			done <- do()
		}
	}()
	if err := <-made; errors.Is(err, unix.EPERM) {
		t.Skip("not run: needs CAP_SYS_ADMIN, since namespaces are made")
	} else if err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func addInterface(name string) error {
	return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "-peer"})
}

// sysctl is the value of a parameter, in the namespace of this thread.
func sysctl(t *testing.T, name string) string {
	t.Helper()
	value, err := os.ReadFile(filepath.Join("/proc/sys", name))
	if err != nil {
		t.Error(err)
	}
	return string(value[:max(len(value)-1, 0)])
}

func setSysctl(t *testing.T, name, value string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0); err != nil {
		t.Error(err)
	}
}

// want compares parameters with what they should be.
func want(t *testing.T, when string, values map[string]string) {
	t.Helper()
	for name, value := range values {
		if is := sysctl(t, name); is != value {
			t.Errorf("%s: %s is %s, and should be %s", when, name, is, value)
		}
	}
}
