package keeper_test

import (
	"context"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/plugins/hostsfile/keeper"
	"github.com/reeveproject/reeve/sdk/role"
)

// The node must find itself by its name: what is in the way of that is the reason, with what to do.
func TestTheNodeFindsItself(t *testing.T) {
	h := newHost("127.0.0.1 localhost\n127.0.1.1 x " + strings.ToUpper(self) + ". # set by the installer\n")
	h.directory.Set(directory("192.0.2.1"))
	if err := during(t, h, func() {
		want(t, h, "Degraded: line 2 of /etc/hosts has the address 127.0.1.1 for this node's name "+self, "127.0.0.1 localhost\n127.0.1.1 x "+strings.ToUpper(self)+". # set by the installer\n"+first)
		h.put(func() {
			mended := strings.Replace(*h.content, strings.ToUpper(self), "other", 1)
			h.content = &mended
			h.elsewhere = []netip.Addr{}
		})
		time.Sleep(10 * time.Second)
		want(t, h, "Degraded: this node's name "+self+" is in /etc/hosts, but the machine does not find it there: have the line \"hosts:\" of /etc/nsswitch.conf", "127.0.0.1 localhost\n127.0.1.1 x other. # set by the installer\n"+first)
		h.put(func() {
			h.elsewhere = []netip.Addr{netip.MustParseAddr("::ffff:192.0.2.100"), netip.MustParseAddr("203.0.113.9")}
		})
		time.Sleep(time.Minute)
		want(t, h, "Degraded: the machine finds this node's name "+self+" at 203.0.113.9, which is not the node's address", "127.0.0.1 localhost\n127.0.1.1 x other. # set by the installer\n"+first)
		h.put(func() { h.elsewhere = nil })
		time.Sleep(time.Minute)
		want(t, h, "Ready", "127.0.0.1 localhost\n127.0.1.1 x other. # set by the installer\n"+first)
	}); err != nil {
		t.Error(err)
	}
}

// In another file than the machine's own nobody looks names up: only what is in it counts.
func TestAnotherFileIsNotLookedUp(t *testing.T) {
	h := newHost("")
	h.configuration, h.path = `{"path": "/srv/hosts"}`, "/srv/hosts"
	h.directory.Set(directory("192.0.2.1"))
	if err := during(t, h, func() { want(t, h, "Ready", first) }); err != nil {
		t.Error(err)
	}
	if h.lookups > 0 {
		t.Errorf("the name was looked up %d times", h.lookups)
	}
}

// A resolver that keeps what it has read of the file for a while is asked again before what it says counts.
func TestAResolverThatRemembers(t *testing.T) {
	h := newHost("")
	h.stale = 5 * time.Second
	h.directory.Set(directory("192.0.2.1"))
	if err := during(t, h, func() {
		want(t, h, "Ready", first)
		h.network.Set([]string{"192.0.2.101"})
		watch := func(most time.Duration, state string) {
			for range most / (100 * time.Millisecond) {
				synctest.Wait()
				if now, _, _ := h.now(); !strings.HasPrefix(now, state) {
					t.Fatalf("the role is %q, want %q", now, state)
				}
				time.Sleep(100 * time.Millisecond)
			}
		}
		watch(20*time.Second, "Ready")
		h.put(func() { h.elsewhere = []netip.Addr{} })
		h.network.Set([]string{"192.0.2.102"})
		watch(5*time.Second, "Degraded")
		// While it is Degraded, an old answer does not make it Ready for a moment either.
		h.network.Set([]string{"192.0.2.103"})
		watch(20*time.Second, "Degraded")
	}); err != nil {
		t.Error(err)
	}
}

func FuzzHostLines(f *testing.F) {
	for _, seed := range []string{"", "192.0.2.1 a", "192.0.2.1\ta b # c a\n", "# 192.0.2.1 a\n", "fe80::1%eth0 a\r\n", "::ffff:192.0.2.1 A.", "a a", "192.0.2.1", "\x00 \xff a", "\n\n192.0.2.1 a\n192.0.2.2 a"} {
		f.Add([]byte(seed), "a")
	}
	f.Fuzz(func(t *testing.T, content []byte, name string) {
		for _, address := range keeper.HostLine(content, name) {
			if !address.IsValid() {
				t.Errorf("%q has for %q an address that is none", content, name)
			}
		}
		if strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) || strings.Contains(name, "#") || strings.Trim(name, ".") == "" {
			return
		}
		appended := append(slices.Concat(content, []byte("\n192.0.2.77\tother ")), name...)
		if !slices.Contains(keeper.HostLine(appended, strings.TrimSuffix(name, ".")), netip.MustParseAddr("192.0.2.77")) {
			t.Errorf("%q is not found in %q", name, appended)
		}
	})
}

func FuzzConfiguration(f *testing.F) {
	for _, seed := range []string{"", "{}", `{"path": "/etc/hosts", "hostname": true, "machineID": false}`, `{"hostname": "a.b"}`, `{"hostname": "a\n"}`, `{"hostname": null}`, `{"hostname": 1}`, `{"path": "x"}`, `[`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		configuration, err := keeper.ParseConfiguration(document)
		if err != nil {
			return
		}
		if path := configuration.File(nil); !filepath.IsAbs(path) || filepath.Clean(path) != path {
			t.Errorf("%q configures the file %q", document, path)
		}
		if name := configuration.Hostname.Of(self); len(name) > 64 || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > 'z' }) || (name == "") == configuration.Hostname.Set {
			t.Errorf("%q configures the host name %q", document, name)
		}
	})
}

// namespaceVariable tells the test's executable that it has mounts and a network of its own.
const namespaceVariable = "HOSTSFILE_TEST_NAMESPACE"

// realHost is a host whose file is the machine's.
type realHost struct{ *host }

func (h *realHost) ReadFile(context.Context, string) ([]byte, string, error) {
	content, err := os.ReadFile(keeper.DefaultPath)
	return content, digest(string(content)), err
}

func (h *realHost) ReplaceFile(_ context.Context, path, expected string, content []byte) (string, bool, error) {
	if path != keeper.DefaultPath {
		return "", false, fs.ErrPermission
	}
	if found, err := os.ReadFile(path); err != nil || digest(string(found)) != expected {
		return "", false, role.ErrFileChanged
	}
	return digest(string(content)), true, os.WriteFile(path, content, 0o644) // something is mounted on it
}

// TestTheMachineLooksItUp uses the machine's own resolver, hosts file and nsswitch.conf, in processes that have those for themselves.
func TestTheMachineLooksItUp(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this cannot be tested here: only root can give a process a hosts file of its own")
	}
	for _, test := range []struct{ name, nsswitch, state string }{
		{"files", "hosts: files dns\n", "Ready"},
		{"dns", "hosts: dns\n", "Degraded: this node's name " + self + " is in /etc/hosts, but the machine does not find it there"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if os.Getenv(namespaceVariable) != "" {
				lookUp(t, test.nsswitch, test.state)
				return
			}
			command := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.v", "-test.timeout=5m", "-test.run=^TestTheMachineLooksItUp$/^"+test.name+"$")
			command.Env = append(os.Environ(), namespaceVariable+"=1")
			command.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET}
			output, err := command.CombinedOutput()
			if strings.Contains(string(output), "--- SKIP: "+t.Name()) {
				t.Skipf("in namespaces of its own:\n%s", output)
			}
			if err != nil || !strings.Contains(string(output), "--- PASS: "+t.Name()) {
				t.Fatalf("in namespaces of its own: %v\n%s", err, output)
			}
		})
	}
}

func lookUp(t *testing.T, nsswitch, state string) {
	t.Helper()
	for path, content := range map[string]string{
		keeper.DefaultPath:   "127.0.0.1 localhost\n",
		"/etc/resolv.conf":   "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n", // where nothing listens
		"/etc/nsswitch.conf": nsswitch,
	} {
		above := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(above, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount(above, path, "", unix.MS_BIND, ""); err != nil {
			t.Skipf("this machine has no %s to put another one on: %v", path, err)
		}
		t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
	}
	h := newHost("")
	h.directory.Set(directory("192.0.2.1"))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- keeper.New(&net.Resolver{PreferGo: true}).Run(ctx, &realHost{h}) }()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		now, _, _ := h.now()
		if strings.HasPrefix(now, state) {
			break
		}
		if time.Now().After(deadline) {
			t.Errorf("with %q the role is %q, want %q", nsswitch, now, state)
			break
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if content, err := os.ReadFile(keeper.DefaultPath); err != nil || string(content) != "127.0.0.1 localhost\n" {
		t.Errorf("the role leaves %q (%v)", content, err)
	}
}
