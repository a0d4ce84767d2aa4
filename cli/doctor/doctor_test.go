package doctor_test

import (
	"errors"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/cli/doctor"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/proto/address"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sound is a machine that lacks nothing.
func sound() doctor.Facts {
	return doctor.Facts{
		Capabilities: 1<<41 - 1, Kernel: "6.12.1-amd64", LandlockABI: 6,
		Cgroups:   doctor.Cgroups{Mode: "v2", Controllers: []string{"cpuset", "cpu", "io", "memory", "pids"}, Delegated: true},
		TPM:       doctor.TPM{Version: "2"},
		OpenFiles: 524288, Systemd: true,
		Data: doctor.Directory{
			Path: "/var/lib/reeve/data", At: "/var/lib", Filesystem: "ext4", FreeBytes: 50 << 30, FreeFiles: 1 << 20, Files: 1 << 22,
		},
		Run: doctor.Directory{Path: "/run/reeve", At: "/run", Filesystem: "tmpfs", FreeBytes: 1 << 30},
		Addresses: []address.Address{
			{Prefix: netip.MustParsePrefix("192.0.2.10/24"), Interface: "eth0"},
			{Prefix: netip.MustParsePrefix("127.0.0.1/8"), Interface: "lo", Reason: "only this machine reaches it"},
		},
	}
}

func find(t *testing.T, document output.Doctor, name string) output.Check {
	t.Helper()
	for _, check := range document.Checks {
		if check.Name == name {
			return check
		}
	}
	t.Fatalf("there is no check %s", name)
	return output.Check{}
}

func TestSoundMachine(t *testing.T) {
	document := doctor.Judge(sound())
	for _, check := range document.Checks {
		if check.Level != "ok" || check.Found == "" || check.Consequence != "" || check.Advice != "" {
			t.Errorf("%+v", check)
		}
	}
	if !document.Runnable || len(document.Checks) < 18 {
		t.Errorf("runnable %t, %d checks", document.Runnable, len(document.Checks))
	}
}

func TestJudge(t *testing.T) {
	broken := errors.New("function not implemented")
	tests := []struct {
		name   string
		change func(*doctor.Facts)
		check  string
		level  string
		// consequence is part of it.
		consequence string
		impossible  bool
	}{
		{"an ordinary user", func(f *doctor.Facts) { f.UID = 1000 }, "user", "warning", "shared-uid", false},
		{"root without what the store's sockets need", func(f *doctor.Facts) { f.Capabilities &^= 1 << 4 }, "user", "missing", "CAP_FSETID roles cannot connect to the consensus store", true},
		{"root in an ordinary container", func(f *doctor.Facts) { f.Capabilities = 0xa80425fb }, "capabilities", "warning", "without CAP_SYS_PTRACE ", false},
		{"root in a container", func(f *doctor.Facts) { f.Capabilities &^= 1 << 7 }, "user", "missing", "user IDs of their own", true},
		{"an old kernel", func(f *doctor.Facts) { f.Kernel = "4.19.0-27" }, "kernel", "warning", "not tried out", false},
		{"a kernel that says nothing", func(f *doctor.Facts) { f.Kernel = "unknown" }, "kernel", "warning", "not tried out", false},
		{"no pidfd", func(f *doctor.Facts) { f.PIDFD = broken }, "pidfd", "missing", "that a role has ended", true},
		{"no SO_PEERPIDFD", func(f *doctor.Facts) { f.PeerPIDFD = broken }, "peer-pidfd", "missing", "still lives is not checked", false},
		{"no Landlock", func(f *doctor.Facts) { f.LandlockABI = 0 }, "landlock", "missing", "confined to their own files", false},
		{"no seccomp", func(f *doctor.Facts) { f.Seccomp = broken }, "seccomp", "missing", "every system call", false},
		{"no no_new_privs", func(f *doctor.Facts) { f.NoNewPrivileges = broken }, "no-new-privileges", "missing", "setuid", false},
		{"no user namespaces", func(f *doctor.Facts) { f.UserNamespaces = broken }, "user-namespaces", "warning", "containers", false},
		{"no cgroups", func(f *doctor.Facts) { f.Cgroups = doctor.Cgroups{Mode: "none"} }, "cgroups", "missing", "ended all at once", false},
		{"cgroup v1", func(f *doctor.Facts) { f.Cgroups = doctor.Cgroups{Mode: "v1"} }, "cgroups", "missing", "ended all at once", false},
		{"hybrid cgroups", func(f *doctor.Facts) { f.Cgroups = doctor.Cgroups{Mode: "hybrid", Delegated: true} }, "cgroups", "warning", "go through cgroup v1", false},
		{"cgroups of another", func(f *doctor.Facts) { f.Cgroups.Delegated = false }, "cgroups", "warning", "no control groups of their own", false},
		{"cgroups without memory", func(f *doctor.Facts) { f.Cgroups.Controllers = []string{"cpu", "pids"} }, "cgroups", "warning", "limited by memory", false},
		{"cgroup v1 that bounds", func(f *doctor.Facts) { f.Cgroups = doctor.Cgroups{Mode: "v1", V1: []string{"cpu", "memory", "pids"}} }, "cgroups", "warning", "ended all at once", false},
		{"parts of the sandbox", func(f *doctor.Facts) { f.LandlockABI = 3 }, "isolation", "warning", "isolation=required", false},
		{"no TPM", func(f *doctor.Facts) { f.TPM = doctor.TPM{} }, "tpm", "missing", "cannot be sealed", false},
		{"an old TPM", func(f *doctor.Facts) { f.TPM = doctor.TPM{Version: "1"} }, "tpm", "missing", "cannot be sealed", false},
		{"the TPM of another", func(f *doctor.Facts) { f.TPM.Usable = broken }, "tpm", "warning", "cannot be sealed", false},
		{"no dm-crypt", func(f *doctor.Facts) { f.DMCrypt = broken }, "luks", "missing", "volumes cannot be encrypted with luks", false},
		{"no fscrypt", func(f *doctor.Facts) { f.Data.Fscrypt = broken }, "fscrypt", "missing", "the data directory itself cannot be encrypted", false},
		{"no cryptsetup", func(f *doctor.Facts) { f.Cryptsetup = broken }, "cryptsetup", "missing", "volumes cannot be encrypted with luks", false},
		{"no loop devices", func(f *doctor.Facts) { f.Loop = broken }, "loop-image", "missing", "cannot be mounted", false},
		{"no mkfs.ext4", func(f *doctor.Facts) { f.MakeFilesystem = broken }, "loop-image", "missing", "cannot be made", false},
		{"no data directory", func(f *doctor.Facts) { f.Data = doctor.Directory{Path: "/x", Err: broken} }, "data-directory", "missing", "nowhere to keep its data", true},
		{"a data directory that is read-only", func(f *doctor.Facts) { f.Data.ReadOnly = true }, "data-directory", "missing", "nowhere to keep its data", true},
		{"the data directory of another", func(f *doctor.Facts) { f.Data.Writable = broken }, "data-directory", "missing", "nowhere to keep its data", true},
		{"a data directory without executables", func(f *doctor.Facts) { f.Data.NoExec = true }, "data-directory", "missing", "cannot be executed", true},
		{"a data directory in a private one", func(f *doctor.Facts) { f.Data.Barriers = []string{"/root", "/root/a"} }, "data-directory", "missing", "cannot reach", true},
		{"little room", func(f *doctor.Facts) { f.Data.FreeBytes = 1 << 30 }, "data-space", "warning", "before it reaches its quota", false},
		{"no room", func(f *doctor.Facts) { f.Data.FreeBytes = 1 << 20 }, "data-space", "missing", "do not fit", true},
		{"few inodes", func(f *doctor.Facts) { f.Data.FreeFiles = 5000 }, "data-inodes", "warning", "run out of inodes", false},
		{"no inodes", func(f *doctor.Facts) { f.Data.FreeFiles = 0 }, "data-inodes", "missing", "cannot be made", true},
		{"inodes without limit", func(f *doctor.Facts) { f.Data.FreeFiles, f.Data.Files = 0, 0 }, "data-inodes", "ok", "", false},
		{"a long run directory", func(f *doctor.Facts) { f.Run.Path = "/" + strings.Repeat("x", 48) }, "run-directory", "missing", "107 bytes", true},
		{"the longest run directory", func(f *doctor.Facts) { f.Run.Path = "/" + strings.Repeat("x", 47) }, "run-directory", "ok", "", false},
		{"a run directory on a disk", func(f *doctor.Facts) { f.Run.Filesystem = "ext4" }, "run-directory", "warning", "left there when the machine boots", false},
		{"the run directory of another", func(f *doctor.Facts) { f.Run.Writable = broken }, "run-directory", "missing", "its sockets", true},
		{"a run directory in a private one", func(f *doctor.Facts) { f.Run.Barriers = []string{"/root"} }, "run-directory", "missing", "cannot reach their sockets", true},
		{"no run directory", func(f *doctor.Facts) { f.Run.Err = broken }, "run-directory", "missing", "its sockets", true},
		{"few open files", func(f *doctor.Facts) { f.OpenFiles = 1024 }, "open-files", "warning", "file descriptors", false},
		{"no address", func(f *doctor.Facts) { f.Addresses = f.Addresses[1:] }, "addresses", "warning", "cannot reach this one", false},
		{"an interface that is not there", func(f *doctor.Facts) { f.NoInterfaces = []string{"eth9"} }, "addresses", "warning", "not told the addresses of eth9", false},
		{"the only interface is not there", func(f *doctor.Facts) { f.NoInterfaces, f.Addresses = []string{"eth9"}, f.Addresses[1:] }, "addresses", "warning", "cannot reach this one", false},
		{"no loopback", func(f *doctor.Facts) { f.Addresses = f.Addresses[:1] }, "addresses", "warning", "does not reach itself", false},
		{"no list of addresses", func(f *doctor.Facts) { f.AddressesErr = broken }, "addresses", "warning", "cannot be said", false},
		{"an address of no interface", func(f *doctor.Facts) { f.Network = &nodev1.Network{Addresses: []string{"192.0.2.11"}} }, "addresses", "warning", "192.0.2.11, which is none", false},
		{"an address that is named", func(f *doctor.Facts) { f.Network = &nodev1.Network{Addresses: []string{"192.0.2.10"}} }, "addresses", "ok", "", false},
		{"no time service", func(f *doctor.Facts) { f.Clock = broken }, "clock", "warning", "certificates", false},
		{"no systemd", func(f *doctor.Facts) { f.Systemd = false }, "systemd", "warning", "started with the machine", false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			facts := sound()
			test.change(&facts)
			document := doctor.Judge(facts)
			check := find(t, document, test.check)
			if check.Level != test.level || !strings.Contains(check.Consequence, test.consequence) {
				t.Errorf("%+v, want level %s and a consequence with %q", check, test.level, test.consequence)
			}
			if test.level != "ok" && (check.Advice == "" || check.Found == "") {
				t.Errorf("%+v says not what was found, or not what to do", check)
			}
			if document.Runnable == test.impossible {
				t.Errorf("runnable: %t", document.Runnable)
			}
		})
	}
}

// TestIsolation holds that every part of the sandbox that a machine cannot enforce is named as a node's status names it.
func TestIsolation(t *testing.T) {
	broken := errors.New("function not implemented")
	tests := map[string]struct {
		change func(*doctor.Facts)
		want   string
	}{
		"nothing":          {func(*doctor.Facts) {}, "every part of the sandbox of roles"},
		"an ordinary user": {func(f *doctor.Facts) { f.UID = 1000 }, "not ipc, mounts, not-dumpable, own-uid"},
		"no CAP_SYS_ADMIN": {func(f *doctor.Facts) { f.Capabilities &^= 1 << 21 }, "not ipc, mounts"},
		"no CAP_SETPCAP":   {func(f *doctor.Facts) { f.Capabilities &^= 1 << 8 }, "not capabilities"},
		"Landlock of 5.13": {func(f *doctor.Facts) { f.LandlockABI = 1 }, "not landlock-tcp"},
		"no Landlock":      {func(f *doctor.Facts) { f.LandlockABI = 0 }, "not landlock-files, landlock-tcp"},
		"an old kernel":    {func(f *doctor.Facts) { f.Seccomp, f.NoNewPrivileges = broken, broken }, "not no-new-privileges, seccomp"},
		"no delegation":    {func(f *doctor.Facts) { f.Cgroups.Delegated = false }, "not cgroup-cpu, cgroup-memory, cgroup-processes"},
		"v1 in part":       {func(f *doctor.Facts) { f.Cgroups = doctor.Cgroups{Mode: "v1", V1: []string{"cpu", "memory"}} }, "not cgroup-processes"},
		"hybrid, all of it": {func(f *doctor.Facts) {
			f.Cgroups = doctor.Cgroups{Mode: "hybrid", V1: []string{"cpu", "memory", "pids"}}
		}, "every part of the sandbox of roles"},
		"v2 without a cpu": {func(f *doctor.Facts) { f.Cgroups.Controllers = []string{"memory", "pids"} }, "not cgroup-cpu"},
	}
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		test := tests[name]
		t.Run(name, func(t *testing.T) {
			facts := sound()
			test.change(&facts)
			if check := find(t, doctor.Judge(facts), "isolation"); check.Found != test.want || (check.Level == "ok") != strings.HasPrefix(test.want, "every") {
				t.Errorf("%+v, want %q", check, test.want)
			}
		})
	}
}

// TestOrdinaryUserNeedsNoSearchableDirectories holds that the roles of an ordinary user, who are all that user, go where it goes.
func TestOrdinaryUserNeedsNoSearchableDirectories(t *testing.T) {
	facts := sound()
	facts.UID, facts.Data.Barriers, facts.Run.Barriers = 1000, []string{"/root"}, []string{"/root"}
	if document := doctor.Judge(facts); !document.Runnable {
		t.Errorf("%+v", document)
	}
}

// TestProbe looks at the machine of the test, which can run nodes: the other tests do.
func TestProbe(t *testing.T) {
	root, err := os.MkdirTemp("/tmp", "rv")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(root) }()
	if err := os.Chmod(root, 0o711); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(root, "elsewhere", "state"), filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	places := doctor.Places{
		Data: filepath.Join(root, "link", "data"), Run: filepath.Join(root, "run"), Network: &nodev1.Network{Interfaces: []string{"lo", "10.0.0.0/8", "reeve-none"}},
	}
	before := listing(t, root)
	facts := doctor.Probe(places)
	if facts.PIDFD != nil || facts.Kernel == "" || facts.OpenFiles == 0 || facts.NoNewPrivileges != nil || facts.UID != os.Geteuid() {
		t.Errorf("%+v", facts)
	}
	if facts.Data.At != root || facts.Data.Err != nil || facts.Data.Writable != nil || len(facts.Data.Barriers) > 0 || facts.Data.FreeBytes == 0 {
		t.Errorf("the data directory is %+v", facts.Data)
	}
	if facts.Run.Path != places.Run || facts.Run.At != root {
		t.Errorf("the run directory is %+v", facts.Run)
	}
	if check := find(t, doctor.Judge(facts), "addresses"); !slices.Equal(facts.NoInterfaces, []string{"reeve-none"}) || !strings.Contains(check.Found, "names reeve-none, and this machine has no such interface") {
		t.Errorf("of an interface that is not there: %v, %+v", facts.NoInterfaces, check)
	}
	if document := doctor.Judge(facts); find(t, document, "pidfd").Level != "ok" || find(t, document, "run-directory").Level == "missing" {
		t.Errorf("%+v", document)
	}
	if after := listing(t, root); after != before {
		t.Errorf("probing has made\n%s\nof\n%s", after, before)
	}
	if os.Geteuid() == 0 {
		if err := os.Chmod(root, 0o700); err != nil {
			t.Fatal(err)
		}
		if facts := doctor.Probe(places); !slices.Equal(facts.Data.Barriers, []string{root}) {
			t.Errorf("a private directory is %+v", facts.Data)
		}
	}
	if facts := doctor.Probe(doctor.Places{Data: filepath.Join(os.Args[0], "data"), Run: "/proc"}); facts.Data.Err == nil {
		t.Errorf("a file is taken for a directory: %+v", facts.Data)
	}
}

func listing(t *testing.T, root string) string {
	t.Helper()
	var text strings.Builder
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil {
			text.WriteString(path + " " + entry.Type().String() + "\n")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// TestProbeMeasuresTheFileSystem compares what is said of a tmpfs, where there is one, with what the kernel says.
func TestProbeMeasuresTheFileSystem(t *testing.T) {
	var shm unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &shm); err != nil || shm.Type != unix.TMPFS_MAGIC {
		t.Skip("/dev/shm is no tmpfs here")
	}
	found := doctor.Probe(doctor.Places{Data: "/dev/shm/reeve", Run: "/dev/shm/reeve"}).Data
	if found.Filesystem != "tmpfs" || found.Fscrypt == nil || found.NoExec != (shm.Flags&unix.ST_NOEXEC != 0) {
		t.Errorf("%+v", found)
	}
}

// What is chosen is said, and of each other address why it is not.
func TestAddresses(t *testing.T) {
	facts := sound()
	facts.Addresses = append(facts.Addresses,
		address.Address{Prefix: netip.MustParsePrefix("172.17.0.1/16"), Interface: "docker0", Reason: "its interface has no carrier"})
	const want = "192.0.2.10 (eth0); not 172.17.0.1 (docker0: its interface has no carrier)"
	if check := find(t, doctor.Judge(facts), "addresses"); check.Found != want || check.Level != "ok" {
		t.Errorf("%+v, want %q", check, want)
	}
}
