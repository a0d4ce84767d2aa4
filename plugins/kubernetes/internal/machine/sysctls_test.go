package machine_test

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/plugins/kubernetes/internal/machine"
)

const (
	forward4 = "net/ipv4/ip_forward"
	forward6 = "net/ipv6/conf/all/forwarding"
	acceptRA = "net/ipv6/conf/dummy.1/accept_ra"
)

func TestSysctls(t *testing.T) {
	sysctls := machine.Sysctls{File: filepath.Join(t.TempDir(), "sysctls")}
	wanted := map[string]string{forward4: "1", forward6: "1", acceptRA: "2", "net/ipv4/ip_local_port_range": "20000 30000", "net/ipv4/conf/all/rp_filter": "0"}
	apart(t, unix.CLONE_NEWNET, func() error {
		if err := addInterface("dummy.1"); err != nil {
			return err
		}
		setSysctl(t, forward4, "0")
		setSysctl(t, "net/ipv4/conf/all/rp_filter", "0")
		// What the kernel sets together with forwarding was not as it would leave it.
		setSysctl(t, "net/ipv4/conf/dummy.1/forwarding", "1")
		setSysctl(t, "net/ipv6/conf/dummy.1/forwarding", "1")
		setSysctl(t, "net/ipv4/conf/all/accept_redirects", "0")
		before := map[string]string{"net/ipv4/conf/lo/forwarding": "0"}
		for _, name := range []string{"net/ipv4/conf/dummy.1/forwarding", "net/ipv6/conf/dummy.1/forwarding", "net/ipv6/conf/lo/forwarding", "net/ipv4/conf/all/accept_redirects"} {
			before[name] = sysctl(t, name)
		}
		for name := range wanted {
			before[name] = sysctl(t, name)
		}
		if err := sysctls.Restore(); err != nil { // of nothing
			return err
		}
		for range 2 { // and another process sets the same again
			if err := sysctls.Set(wanted); err != nil {
				return err
			}
		}
		now := maps.Clone(wanted)
		now["net/ipv4/ip_local_port_range"] = "20000\t30000"
		now["net/ipv4/conf/lo/forwarding"] = "1"
		want(t, "set", now)
		if err := addInterface("later"); err != nil {
			return err
		}
		if err := sysctls.Restore(); err != nil {
			return err
		}
		want(t, "restored", before)
		if _, err := os.Stat(sysctls.File); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the file is left: %v", err)
		}
		return nil
	})
}

// TestSysctlsOfOthers: what others have changed since stays.
func TestSysctlsOfOthers(t *testing.T) {
	sysctls := machine.Sysctls{File: filepath.Join(t.TempDir(), "sysctls")}
	apart(t, unix.CLONE_NEWNET, func() error {
		for _, name := range []string{"net/core/somaxconn", "net/ipv4/ip_default_ttl"} {
			setSysctl(t, name, "60")
		}
		if err := sysctls.Set(map[string]string{"net/core/somaxconn": "61", "net/ipv4/ip_default_ttl": "61"}); err != nil {
			return err
		}
		setSysctl(t, "net/core/somaxconn", "70")
		setSysctl(t, "net/ipv4/ip_default_ttl", "70")
		if err := sysctls.Set(map[string]string{"net/ipv4/ip_default_ttl": "62"}); err != nil {
			return err
		}
		if err := sysctls.Restore(); err != nil {
			return err
		}
		want(t, "restored", map[string]string{"net/core/somaxconn": "70", "net/ipv4/ip_default_ttl": "70"})
		return nil
	})
}

// TestSysctlsElsewhere: what was in another namespace or before the boot is not put back.
func TestSysctlsElsewhere(t *testing.T) {
	for name, change := range map[string]func(string) string{
		"another namespace": func(text string) string { return text },
		"another boot":      func(text string) string { return strings.Replace(text, `"boot": "`, `"boot": "0`, 1) },
	} {
		sysctls := machine.Sysctls{File: filepath.Join(t.TempDir(), "sysctls")}
		set := func() error { return sysctls.Set(map[string]string{"net/ipv4/ip_default_ttl": "61"}) }
		apart(t, unix.CLONE_NEWNET, func() error {
			setSysctl(t, "net/ipv4/ip_default_ttl", "60")
			if err := set(); err != nil {
				return err
			}
			content, err := os.ReadFile(sysctls.File)
			if err != nil {
				return err
			}
			if err := os.WriteFile(sysctls.File, []byte(change(string(content))), 0o600); err != nil {
				return err
			}
			if name == "another namespace" {
				return nil
			}
			if err := sysctls.Restore(); err != nil {
				return err
			}
			want(t, name, map[string]string{"net/ipv4/ip_default_ttl": "61"})
			return nil
		})
		apart(t, unix.CLONE_NEWNET, func() error {
			setSysctl(t, "net/ipv4/ip_default_ttl", "61")
			if err := sysctls.Restore(); err != nil {
				return err
			}
			want(t, name, map[string]string{"net/ipv4/ip_default_ttl": "61"})
			return nil
		})
	}
}

// TestSysctlsRefused: a damaged file is said, and nothing is changed.
func TestSysctlsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sysctls")
	sysctls := machine.Sysctls{File: file}
	apart(t, unix.CLONE_NEWNET, func() error {
		before := sysctl(t, "net/ipv4/ip_default_ttl")
		for _, content := range []string{"", "{", `{"version":2,"boot":"","former":[]}`, `{"version":1,"boot":"","former":[{"name":"../../etc/passwd","was":"","set":""}]}`} {
			if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
				return err
			}
			for _, err := range []error{sysctls.Restore(), sysctls.Set(map[string]string{"net/ipv4/ip_default_ttl": "61"})} {
				if err == nil || !strings.Contains(err.Error(), file) {
					t.Errorf("of %q it says %v", content, err)
				}
			}
		}
		if err := os.Remove(file); err != nil {
			return err
		}
		for _, name := range []string{"", "..", "../x", "/proc/sys/net/ipv4/ip_default_ttl", "net/nothing"} {
			if err := sysctls.Set(map[string]string{name: "1"}); err == nil {
				t.Errorf("the sysctl %q was set", name)
			}
		}
		want(t, "refused", map[string]string{"net/ipv4/ip_default_ttl": before})
		return nil
	})
}
