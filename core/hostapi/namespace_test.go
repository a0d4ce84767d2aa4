package hostapi_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/reeveproject/reeve/core/hostapi"
	"github.com/reeveproject/reeve/core/inorder"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// namespaceVariable tells the test's executable that it has mounts and a host name of its own, and whose namespace it has left for that.
const namespaceVariable = "HOSTAPI_TEST_NAMESPACE"

// namespaced reports whether the test has mounts and a host name of its own. If it has not, it is run once more in a process that has, and its
// outcome there is the test's.
func namespaced(t *testing.T) bool {
	t.Helper()
	if parent, isChild := os.LookupEnv(namespaceVariable); isChild {
		// The machine that runs the test keeps its name, whatever is in the environment.
		if own, err := os.Readlink("/proc/self/ns/uts"); err != nil || own == parent {
			t.Fatalf("the process has no host name of its own: %s (%v)", own, err)
		}
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("this cannot be tested here: only root can give a process mounts and a host name of its own")
	}
	own, err := os.Readlink("/proc/self/ns/uts")
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.v", "-test.timeout=20m", "-test.run=^"+t.Name()+"$")
	command.Env = append(os.Environ(), namespaceVariable+"="+own)
	command.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS}
	output, err := command.CombinedOutput()
	if err != nil || !strings.Contains(string(output), "--- PASS: "+t.Name()) {
		t.Fatalf("in namespaces of its own: %v\n%s", err, output)
	}
	return false
}

// mount mounts a file on another for as long as the test runs.
func mount(t *testing.T, from, on string, flags uintptr) {
	t.Helper()
	if err := unix.Mount(from, on, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(on, unix.MNT_DETACH) })
	if flags == 0 {
		return
	}
	if err := unix.Mount("", on, "", unix.MS_BIND|unix.MS_REMOUNT|flags, ""); err != nil {
		t.Fatal(err)
	}
}

// TestMountedFile: a file on which something is mounted is written in place, under the conditions of every other file.
func TestMountedFile(t *testing.T) {
	if !namespaced(t) {
		return
	}
	n := newNode(t, nil)
	dir := sharedDir(t)
	path, above := filepath.Join(dir, "file"), filepath.Join(dir, "above")
	mustWrite(t, path, "below", 0o644)
	mustWrite(t, above, "former content", 0o640)
	if err := os.Chown(above, 1234, 5678); err != nil {
		t.Fatal(err)
	}
	mount(t, above, path, 0)
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	client := n.client(remitOf("role.1", replaceFileGrant(path)))
	present := "former content"
	for _, content := range []string{"short", strings.Repeat("longer ", 10_000), strings.Repeat("LONGER ", 10_000), "", "end"} {
		read, err := client.ReadFile(within(t), &hostv1.ReadFileRequest{Path: path})
		if err != nil || string(read.GetContent()) != present {
			t.Fatalf("reading gives %.100q (%v), and should %.100q", read.GetContent(), err, present)
		}
		mustRefuse(t, replace(t, client, path, digestOf("something else"), content), codes.Aborted, "changed")
		mustRefuse(t, replace(t, client, path, "", content), codes.Aborted, "exists")
		mustHold(t, above, present)
		response, err := client.ReplaceFile(within(t), &hostv1.ReplaceFileRequest{Path: path, ExpectedDigest: read.GetDigest(), Content: []byte(content)})
		if err != nil || !response.GetInPlace() || response.GetDigest() != digestOf(content) {
			t.Fatalf("answered %v (%v)", response, err)
		}
		mustHold(t, above, content)
		present = content
	}
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
		t.Errorf("it is another file than before (%v)", err)
	}
	if got := modeAndOwner(t, path); got != "100640 1234:5678" {
		t.Errorf("the file is %s", got)
	}
	mustHaveOnly(t, dir, "above", "file")
	// What another program writes to it, by whatever name, is told.
	told := make(chan error, 1)
	go func() {
		_, err := client.AwaitFile(within(t), &hostv1.AwaitFileRequest{Path: path, Digest: digestOf(present)})
		told <- err
	}()
	if err := os.WriteFile(above, []byte("another program"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := <-told; err != nil {
		t.Error(err)
	}
	if err := unix.Unmount(path, 0); err != nil {
		t.Fatal(err)
	}
	mustHold(t, path, "below")
	response, err := client.ReplaceFile(within(t), &hostv1.ReplaceFileRequest{Path: path, ExpectedDigest: digestOf("below"), Content: []byte("new")})
	if err != nil || response.GetInPlace() {
		t.Errorf("with nothing mounted on it: %v (%v)", response, err)
	}
}

// TestMountedFilesOfContainers: what container engines mount on the hosts file.
func TestMountedFilesOfContainers(t *testing.T) {
	if !namespaced(t) {
		return
	}
	for name, test := range inorder.Of(map[string]struct {
		prepare func(t *testing.T, dir, path, above string)
		want    codes.Code
		says    string
	}{
		"in a directory that is read-only": {func(t *testing.T, dir, path, above string) {
			mount(t, dir, dir, unix.MS_RDONLY)
			mount(t, above, path, 0)
		}, codes.OK, ""},
		"a file without a name": {func(t *testing.T, _, path, above string) {
			mount(t, above, path, 0)
			if err := os.Remove(above); err != nil {
				t.Fatal(err)
			}
		}, codes.OK, ""},
		"read-only": {func(t *testing.T, _, path, above string) {
			mount(t, above, path, unix.MS_RDONLY)
		}, codes.FailedPrecondition, "read-only"},
		"a file with two names": {func(t *testing.T, _, path, above string) {
			if err := os.Link(above, above+"2"); err != nil {
				t.Fatal(err)
			}
			mount(t, above, path, 0)
		}, codes.FailedPrecondition, "hard links"},
		"in a directory that everybody may write": {func(t *testing.T, dir, path, above string) {
			if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil {
				t.Fatal(err)
			}
			mount(t, above, path, 0)
		}, codes.FailedPrecondition, "chmod"},
	}) {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, nil)
			dir, other := sharedDir(t), sharedDir(t)
			path, above := filepath.Join(dir, "file"), filepath.Join(other, "above")
			mustWrite(t, path, "below", 0o644)
			mustWrite(t, above, "content", 0o644)
			client := n.client(remitOf("role.1", replaceFileGrant(path)))
			test.prepare(t, dir, path, above)
			mustRefuse(t, replace(t, client, path, digestOf("content"), "new content"), test.want, test.says)
			if test.want == codes.OK {
				mustHold(t, path, "new content")
			} else {
				mustHold(t, path, "content")
			}
		})
	}
}

// TestMountedFileOnAFullDisk: a content for which there is no room leaves the former one.
func TestMountedFileOnAFullDisk(t *testing.T) {
	if !namespaced(t) {
		return
	}
	dir, other := sharedDir(t), sharedDir(t)
	path, above := filepath.Join(dir, "file"), filepath.Join(other, "above")
	mustWrite(t, path, "below", 0o644)
	if err := unix.Mount("none", other, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(other, unix.MNT_DETACH) })
	mustWrite(t, above, "content", 0o644)
	mount(t, above, path, 0)
	client := newNode(t, nil).client(remitOf("role.1", replaceFileGrant(path)))
	mustRefuse(t, replace(t, client, path, digestOf("content"), strings.Repeat("x", 128<<10)), codes.ResourceExhausted, "full")
	mustHold(t, path, "content")
	if err := replace(t, client, path, digestOf("content"), strings.Repeat("x", 32<<10)); err != nil {
		t.Error(err)
	}
}

func hostnameGrant(parameters map[string]string) *rolev1.Grant {
	return &rolev1.Grant{Name: "set-hostname", Parameters: parameters}
}

func mustBeNamed(t *testing.T, want string) {
	t.Helper()
	if got, err := os.Hostname(); err != nil || got != want {
		t.Errorf("the machine is called %q (%v), and should %q", got, err, want)
	}
}

func TestSetHostname(t *testing.T) {
	if !namespaced(t) {
		return
	}
	n := newNode(t, nil)
	dir := sharedDir(t)
	path := filepath.Join(dir, "hostname")
	if err := unix.Sethostname([]byte("former")); err != nil {
		t.Fatal(err)
	}
	set := func(client hostv1.HostServiceClient, name, want string) {
		t.Helper()
		response, err := client.SetHostname(within(t), &hostv1.SetHostnameRequest{Name: name})
		if got := fmt.Sprint(response.GetChanged(), response.GetInPlace()); err != nil || got != want {
			t.Errorf("%s: answered %s (%v), and should %s", name, got, err, want)
		}
		mustBeNamed(t, name)
	}
	client := n.client(remitOf("role.1", hostnameGrant(map[string]string{"path": path})))
	set(client, "one", "true false")
	mustHold(t, path, "one\n")
	set(client, "one", "false false")
	set(client, "two.example", "true false")
	mustHold(t, path, "two.example\n")

	// What says so already stays as it is; what the file says is the machine's name, too.
	mustWrite(t, path, "# ours\n\n two.example \n", 0o600)
	set(client, "two.example", "false false")
	mustHold(t, path, "# ours\n\n two.example \n")
	mustWrite(t, path, "other\n", 0o600)
	set(client, "two.example", "true false")
	mustHold(t, path, "two.example\n")
	if got := modeAndOwner(t, path); got != "100600 0:0" {
		t.Errorf("the file is %s", got)
	}

	above := filepath.Join(dir, "above")
	mustWrite(t, above, "container\n", 0o644)
	mount(t, above, path, 0)
	set(client, "three", "true true")
	mustHold(t, above, "three\n")
	if err := unix.Unmount(path, 0); err != nil {
		t.Fatal(err)
	}

	// A file that is refused leaves the machine as it is.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(above, path); err != nil {
		t.Fatal(err)
	}
	_, err := client.SetHostname(within(t), &hostv1.SetHostnameRequest{Name: "four"})
	mustRefuse(t, err, codes.FailedPrecondition, path, "symbolic link")
	_, err = client.SetHostname(within(t), &hostv1.SetHostnameRequest{Name: "-"})
	mustRefuse(t, err, codes.InvalidArgument, "begins or ends")
	mustBeNamed(t, "three")

	// Without a file only the kernel is told.
	set(n.client(remitOf("role.2", hostnameGrant(nil))), "five", "true false")
	mustHold(t, above, "three\n")
	mustHaveOnly(t, dir, "above", "hostname")
}

// TestSetHostnameWithoutTheRight: what the kernel refuses is not written either.
func TestSetHostnameWithoutTheRight(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may set the host name; the run as an ordinary user tests this")
	}
	dir := sharedDir(t)
	path := filepath.Join(dir, "hostname")
	client := newNode(t, nil).client(remitOf("role.1", hostnameGrant(map[string]string{"path": path})))
	_, err := client.SetHostname(within(t), &hostv1.SetHostnameRequest{Name: "not-the-name-of-this-machine"})
	mustRefuse(t, err, codes.PermissionDenied, "run the core as root")
	mustHaveOnly(t, dir)
}

func TestHostnames(t *testing.T) {
	label := strings.Repeat("x", 63)
	for name, want := range map[string]bool{
		"a": true, "a-b": true, "Node-1.example": true, nodeID: true, label: true, "1.2.3.4a": true, "1a": true, "0x1g": true, "0x7f.web": true, "0x7f000001": false, "127.0x1": false, "1.0X": false, "4.example": true, strings.Repeat("a.", 31) + "bc": true,
		"": false, ".": false, "a.": false, ".a": false, "a..b": false, "-a": false, "a-": false, "a.-b": false, "a_b": false, "a b": false, "a\n": false, "ä": false,
		"a\x00": false, label + "x": false, label + ".a": false, "192.0.2.1": false, "42": false, "a.1": false, "::1": false, "a/b": false,
	} {
		if err := hostapi.CheckHostname(name); (err == nil) != want {
			t.Errorf("%.70q: %v", name, err)
		}
	}
}
