package sandbox_test

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/sandbox"
	"github.com/reeveproject/reeve/proto/remit"
)

const denied = "permission denied"

// TestFiles is what a role without grants can do with files: Landlock alone, and with a view of its own.
func TestFiles(t *testing.T) {
	for _, view := range []bool{false, true} {
		t.Run("own view "+strconv.FormatBool(view), func(t *testing.T) {
			w, host := newWorld(t), probed(t)
			absent := denied
			if view {
				needRoot(t)
				absent = "no such file"
			} else {
				host = host.Without(sandbox.MissingMounts)
			}
			write(t, filepath.Join(w.dir, "outside"), "x")
			expect(t, host, w.policy, map[string]string{
				"read " + w.private + "/file": "", "write " + w.private + "/new": "", "mkdir " + w.private + "/dir": "", "list " + w.private: "",
				"listen-unix " + w.private + "/sock":  "",
				"copy-self " + w.private + "/program": "",
				"read " + w.passage + "/file":         denied, "list " + w.passage: denied, "stat " + w.passage: "",
				"read " + w.other + "/file": absent, "write " + w.other + "/new": absent, "list " + w.other: absent,
				"read " + w.dir + "/outside": absent, "remove " + w.other + "/file": absent,
				"read /etc/hosts": "", "list /etc": "", "write /etc/new": "", "read /proc/cpuinfo": "", "write /proc/self/oom_score_adj": "",
				"open /dev/null": "", "read /dev/kmsg": "", "open /dev/zero": "", "list /home": "", "list /": denied,
			}, "write /etc/new", "write /proc/self/oom_score_adj", "read /dev/kmsg", "list /home")
			if root() {
				expect(t, host, w.policy, map[string]string{"read /proc/self/exe": denied})
			}
			expect(t, host, w.policy, map[string]string{
				"rename " + w.private + "/new " + w.private + "/dir/moved": "", "remove " + w.private + "/file": "",
			})
		})
	}
}

// TestExecute: a role executes itself, and nothing that it wrote or finds.
func TestExecute(t *testing.T) {
	w, host := newWorld(t), probed(t)
	expect(t, host, w.policy, map[string]string{
		"execute /proc/self/exe": "", "fork ": "", "copy-self " + w.private + "/program": "",
	})
	expect(t, host, w.policy, map[string]string{"execute " + w.private + "/program": denied, "execute /bin/true": ""}, "execute /bin/true")
	w.policy.GivesUp = []string{remit.GiveUpProcesses}
	expect(t, host, w.policy, map[string]string{"fork ": notPermitted, "execute /proc/self/exe": anyError, "call " + number(unix.SYS_MEMFD_CREATE): notPermitted})
}

// TestView is what the file systems of a role consist of.
func TestView(t *testing.T) {
	needRoot(t)
	w, host := newWorld(t), probed(t)
	// Somewhere else than in /tmp, which is then the role's own.
	var err error
	if w.dir, err = os.MkdirTemp("/var/tmp", "sb"); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(w.dir) }()
	if err := os.Chmod(w.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range []*string{&w.private, &w.passage} {
		moved := filepath.Join(w.dir, filepath.Base(*path))
		if output, err := exec.Command("cp", "-a", *path, moved).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		*path = moved
	}
	w.policy.Private, w.policy.Passages = []string{w.private}, []string{w.passage}
	got := attempt(t, host, w.policy, "read /proc/self/mountinfo", "temporary", "list /proc", "list "+w.passage)
	if !strings.Contains(got["list "+w.passage], denied) {
		t.Errorf("a passage can be listed: %s", got["list "+w.passage])
	}
	options := make(map[string]string)
	for _, line := range strings.Split(strings.TrimSpace(got["read /proc/self/mountinfo"]), "\n") {
		fields := strings.Fields(line)
		options[fields[4]] = fields[5]
	}
	for path, flags := range options {
		writable := path == "/tmp" || path == w.private
		if slices.Contains(strings.Split(flags, ","), "rw") != writable {
			t.Errorf("%s is mounted %s", path, flags)
		}
		for _, flag := range []string{"nosuid", "noexec", "nodev"} {
			if !strings.Contains(flags, flag) && (path != "/" || flag != "nodev") {
				t.Errorf("%s is mounted %s, without %s", path, flags, flag)
			}
		}
		known := []string{"/", "/proc", "/tmp", "/etc", w.private, w.passage}
		if !slices.Contains(known, path) && !strings.HasPrefix(path, "/usr/share/") && !strings.HasPrefix(path, "/usr/local/share/") {
			t.Errorf("%s is shown", path)
		}
	}
	for _, path := range []string{"/", "/proc", "/tmp", "/etc", w.private, w.passage} {
		if options[path] == "" {
			t.Errorf("%s is not shown", path)
		}
	}
	if strings.HasPrefix(got["temporary"], "error") {
		t.Errorf("temporary files: %s", got["temporary"])
	}
	var processes int
	for _, name := range strings.Fields(got["list /proc"]) {
		if _, err := strconv.Atoi(name); err == nil {
			processes++
		}
	}
	if processes != 1 {
		t.Errorf("it sees %d processes", processes)
	}
}

// TestLaterChanges: what comes and goes below a shown directory is seen while the role runs.
func TestLaterChanges(t *testing.T) {
	w, host := newWorld(t), probed(t)
	w.policy.Remit.Read = []string{w.other}
	later, replaced := filepath.Join(w.passage, "later"), filepath.Join(w.other, "file")
	socket := filepath.Join(later, "sock")
	child := begin(t, host, w.policy)
	root := "/proc/" + strconv.Itoa(child.Process.Pid) + "/root"
	if err := os.Mkdir(later, 0o755); err != nil {
		t.Fatal(err)
	}
	listen(t, "unix", socket)
	write(t, replaced+".new", "new")
	if err := os.Rename(replaced+".new", replaced); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(root + replaced); root == "" || err != nil || string(text) != "new" {
		if os.Geteuid() == 0 {
			t.Errorf("the role sees %q %v", text, err)
		}
	}
	if _, err := os.Stat(root + socket); err != nil && os.Geteuid() == 0 {
		t.Errorf("the role does not see a socket that was made later: %v", err)
	}
}

// TestPeers: the kernel tells core and role the truth about each other over a socket in a passage.
func TestPeers(t *testing.T) {
	w, host := newWorld(t), probed(t)
	socket := filepath.Join(w.passage, "sock")
	listener := listen(t, "unix", socket)
	type seen struct {
		peer *unix.Ucred
		err  error
	}
	accepted := make(chan seen, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			accepted <- seen{nil, err}
			return
		}
		defer func() { _ = conn.Close() }()
		raw, err := conn.(*net.UnixConn).SyscallConn()
		if err != nil {
			accepted <- seen{nil, err}
			return
		}
		var s seen
		err = raw.Control(func(fd uintptr) { s.peer, s.err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
		s.err = errors.Join(s.err, err)
		accepted <- s
	}()
	child := begin(t, host, w.policy, "unix "+socket)
	if want := strconv.Itoa(os.Getpid()) + " " + strconv.Itoa(os.Geteuid()); child.results["unix "+socket] != want {
		t.Errorf("the role sees %q, want %q", child.results["unix "+socket], want)
	}
	if s := <-accepted; s.err != nil || int(s.peer.Pid) != child.Process.Pid || s.peer.Uid != w.policy.UID {
		t.Errorf("the core sees %+v %v, want process %d of user %d", s.peer, s.err, child.Process.Pid, w.policy.UID)
	}
}

// TestGrantedPaths: each grant opens what it names, and no further.
func TestGrantedPaths(t *testing.T) {
	w, host := newWorld(t), probed(t)
	readable, writable, programs := filepath.Join(w.dir, "r"), filepath.Join(w.dir, "w"), filepath.Join(w.dir, "x")
	link, file := filepath.Join(w.dir, "link"), filepath.Join(w.dir, "one")
	for _, dir := range []string{readable, writable, programs, writable + "/deep"} {
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "file"), "x")
	}
	write(t, file, "x")
	if err := os.Chmod(file, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(readable, link); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(copied(t, w.dir), programs+"/program"); err != nil {
		t.Fatal(err)
	}
	w.policy.Remit = remit.Remit{Read: []string{link, readable}, Write: []string{writable, file}, Execute: []string{programs}}
	expect(t, host, w.policy, map[string]string{
		"read " + readable + "/file": "", "read " + link + "/file": "", "list " + readable: "", "write " + readable + "/new": anyError,
		"write " + writable + "/new": "", "mkdir " + writable + "/deep/dir": "", "write " + file: "", "remove " + file: anyError,
		"execute " + programs + "/program": "", "write " + programs + "/new": anyError, "execute " + writable + "/program": anyError,
		"read " + w.other + "/file": anyError,
	})
	// Nested grants add up.
	w.policy.Remit = remit.Remit{Read: []string{w.dir}, Write: []string{writable}, Execute: []string{writable + "/deep"}}
	expect(t, host, w.policy, map[string]string{
		"read " + readable + "/file": "", "write " + readable + "/new": anyError, "write " + writable + "/more": "", "write " + writable + "/deep/file2": "",
	})
}

func copied(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(executable(t))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "copy")
	syscall.ForkLock.RLock() // nobody that is forked meanwhile holds it open
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, text, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestPathErrors: what cannot be shown is named.
func TestPathErrors(t *testing.T) {
	w, host := newWorld(t), probed(t)
	trap := filepath.Join(w.private, "trap")
	if err := os.Symlink(w.other, trap); err != nil {
		t.Fatal(err)
	}
	// The role can write there under another name than that under which a path below is granted.
	writable, alias := filepath.Join(w.dir, "writable"), filepath.Join(w.dir, "alias")
	for _, err := range []error{os.Mkdir(writable, 0o777), os.Symlink(writable, alias), os.Symlink(w.other, filepath.Join(writable, "trap"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		remit remit.Remit
		grant string
		path  string
		want  error
	}{
		"not there":            {remit.Remit{Write: []string{w.dir + "/nothing"}}, remit.WritePath, w.dir + "/nothing", syscall.ENOENT},
		"below an alias":       {remit.Remit{Read: []string{writable + "/trap"}, Write: []string{alias}}, remit.ReadPath, writable + "/trap", syscall.ELOOP},
		"by an alias":          {remit.Remit{Read: []string{alias + "/trap"}, Write: []string{writable}}, remit.ReadPath, alias + "/trap", syscall.ELOOP},
		"a link of the role's": {remit.Remit{Read: []string{trap}}, remit.ReadPath, trap, syscall.ELOOP},
	} {
		p := w.policy
		p.Remit = c.remit
		_, err := host.Start(p, sandbox.Command{Executable: opened(t, executable(t)), Name: "x"})
		var path *sandbox.PathError
		if !errors.As(err, &path) || path.Grant != c.grant || path.Path != c.path || !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
