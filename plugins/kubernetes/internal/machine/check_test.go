package machine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/plugins/kubernetes/internal/machine"
)

// fit is what this machine lacks by itself; the test is skipped if it is anything.
func fit(t *testing.T) machine.CheckConfig {
	t.Helper()
	config := machine.CheckConfig{State: t.TempDir(), IPv6: true}
	if lacks := machine.Check(t.Context(), config); len(lacks) > 0 {
		t.Skipf("not run: this machine cannot be a worker:\n%s", strings.Join(lacks, "\n"))
	}
	return config
}

// TestCheck: everything that is missing is said, once, with what to do.
func TestCheck(t *testing.T) {
	config := fit(t)
	first, second := t.TempDir(), t.TempDir()
	for _, path := range []string{filepath.Join(second, "runc"), filepath.Join(first, "containerd")} {
		if err := os.WriteFile(path, nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// It is no program, since nobody may run it, or it is a directory.
	if err := os.WriteFile(filepath.Join(first, "runc"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(first, "ptp"), 0o755); err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	config.Parts, config.Directories = []string{"containerd", "runc", "ptp", "host-local"}, []string{first, second}
	config.Ports = []machine.Port{
		{Network: "tcp", Address: netip.MustParseAddrPort(taken.Addr().String()), Purpose: "the kubelet"},
		{Network: "tcp", Address: netip.MustParseAddrPort("127.0.0.1:0"), Purpose: "nobody"},
		{Network: "udp", Address: netip.MustParseAddrPort(silent.LocalAddr().String()), Purpose: "the pod network"},
		{Network: "tcp", Address: netip.MustParseAddrPort("203.0.113.9:10250"), Purpose: "the kubelet"},
	}
	wanted := []string{
		"The program ptp is in none of " + first + ", " + second,
		"The program host-local is in none of ",
		fmt.Sprintf("The TCP port %d at 127.0.0.1 is in use, and the kubelet needs it: find by whom (`ss -ltnp sport = :%[1]d`)", taken.Addr().(*net.TCPAddr).Port),
		fmt.Sprintf("The UDP port %d at 127.0.0.1 is in use, and the pod network needs it: find by whom (`ss -lunp sport = :%[1]d`)", silent.LocalAddr().(*net.UDPAddr).Port),
		"the kubelet cannot listen at 203.0.113.9:10250",
	}
	lacks := machine.Check(t.Context(), config)
	if len(lacks) != len(wanted) {
		t.Errorf("it says\n%s", strings.Join(lacks, "\n"))
	}
	for i, want := range wanted {
		if i < len(lacks) && (!strings.HasPrefix(lacks[i], want) || !strings.HasSuffix(lacks[i], ".")) {
			t.Errorf("it says %q, and should begin with %q", lacks[i], want)
		}
	}
	if path, err := machine.FindPart("runc", config.Directories); err != nil || path != filepath.Join(second, "runc") {
		t.Errorf("runc is found at %q, %v", path, err)
	}
}

// TestCheckLeavesNothing: of what is tried nothing is left.
func TestCheckLeavesNothing(t *testing.T) {
	config := fit(t)
	apart(t, unix.CLONE_NEWNET, func() error {
		state := func() (all []string) {
			for _, command := range [][]string{{"ip", "-o", "link"}, {"nft", "list", "ruleset"}} {
				output, err := exec.Command(command[0], command[1:]...).CombinedOutput()
				if err != nil {
					t.Errorf("%v: %v: %s", command, err, output)
				}
				all = append(all, string(output))
			}
			entries, err := os.ReadDir(config.State)
			if err != nil || len(entries) > 0 {
				t.Errorf("there is %v in the directory, %v", entries, err)
			}
			return append(all, mounts(t, config.State)...)
		}
		before := state()
		if lacks := machine.Check(context.Background(), config); len(lacks) > 0 {
			t.Errorf("it says %q", lacks)
		}
		if after := state(); !slices.Equal(before, after) {
			t.Errorf("there was %q, and there is %q", before, after)
		}
		return nil
	})
}

// TestCheckSays: what is lacking here and there is said.
func TestCheckSays(t *testing.T) {
	config := fit(t)
	says := func(config machine.CheckConfig, want string) {
		t.Helper()
		lacks := machine.Check(context.Background(), config)
		if !slices.ContainsFunc(lacks, func(lack string) bool { return strings.Contains(lack, want) }) {
			t.Errorf("it does not say %q: %q", want, lacks)
		}
	}
	programs := t.TempDir()
	t.Setenv("PATH", programs)
	says(config, "The program nft cannot be run")
	for text, want := range map[string]string{
		"nftables v1.0.0 (Fearless Fosdick)": "1.0.1 or later is needed", "nftables v0.9.8 (E.D.S.)": "1.0.1 or later is needed", "something": "1.0.1 or later is needed",
		"nftables v1.1 (nobody)": "The kernel does not do all of nftables",
	} {
		if err := os.WriteFile(filepath.Join(programs, "nft"), []byte("#!/bin/sh\n[ \"$1\" = --version ] && echo '"+text+"' && exit 0\nexit 1\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		says(config, want)
	}
	nowhere := config
	nowhere.State = filepath.Join(config.State, "nowhere")
	says(nowhere, "Containers cannot have their files in "+nowhere.State)
	apart(t, unix.CLONE_NEWNET, func() error {
		setSysctl(t, "net/ipv6/conf/default/disable_ipv6", "1")
		says(config, "IPv6 is turned off")
		return nil
	})
	apart(t, unix.CLONE_NEWNS, func() error {
		if err := unix.Mount("test", "/dev", "tmpfs", 0, ""); err != nil {
			return err
		}
		says(config, "The kernel's messages cannot be read")
		return nil
	})
}

// TestCheckOrdinaryUser: who is not root is told so, and not all that follows from it.
func TestCheckOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		lacks := machine.Check(t.Context(), machine.CheckConfig{State: "/nowhere"})
		if len(lacks) == 0 || !strings.HasPrefix(lacks[0], "The node does not run as root") {
			t.Errorf("it says %q", lacks)
		}
		for _, lack := range lacks {
			if strings.Contains(lack, "namespaces") || strings.Contains(lack, "/nowhere") {
				t.Errorf("it says %q", lack)
			}
		}
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	directory, err := os.MkdirTemp("/tmp", "check")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(directory) }()
	tests := filepath.Join(directory, "tests")
	if output, err := exec.Command("install", "-m", "755", self, tests).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	if err := os.Chmod(directory, 0o755); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), tests, "-test.run=TestCheckOrdinaryUser", "-test.v")
	command.Dir = "/"
	// A user of whom there is hardly another process: copies of the test may run at the same time.
	id := 61000 + rand.Uint32N(4000)
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: id, Gid: id, Groups: []uint32{}}}
	if output, err := command.CombinedOutput(); err != nil || !strings.Contains(string(output), "--- PASS: TestCheckOrdinaryUser") {
		t.Fatalf("%v: %s", err, output)
	}
}
