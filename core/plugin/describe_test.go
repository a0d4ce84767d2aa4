package plugin_test

import (
	"debug/elf"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/reeveproject/reeve/core/inorder"
	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/plugin/plugintest"
	"github.com/reeveproject/reeve/core/plugin/store"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/proto/remit"
)

func TestDescribe(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	digest, err := node.store.Import(t.Context(), executable(t).Reader(t, everything))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		manifest, err := node.launcher.Describe(t.Context(), digest)
		if err != nil {
			t.Fatal(err)
		}
		if manifest.GetName() != "everything" || len(manifest.GetRoles()) != 2 {
			t.Errorf("manifest %v", manifest)
		}
	}
	node.nothingLeft(t)
}

func TestDescribeWhatIsNoPlugin(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	for name, test := range inorder.Of(map[string]struct {
		content []byte
		is      error
		line    string
	}{
		"text": {[]byte("just a text\n"), plugin.ErrExec, ""},
		// The machine's loader and libraries are there, and nothing else that it would need.
		"linked":   {nil, plugin.ErrExited, "exited with status 0"},
		"shell":    {[]byte("#!/bin/sh\necho this is no plugin >&2\nexit 3\n"), plugin.ErrExec, ""},
		"no shell": {[]byte("#!/nonexistent\n"), plugin.ErrExec, ""},
		"exit":     {nil, plugin.ErrExited, "cannot find my own feet"},
		"garbage":  {nil, plugin.ErrHandshake, ""},
		"flood":    {nil, plugin.ErrHandshake, ""},
		"close":    {nil, plugin.ErrHandshake, ""},
		"outside":  {nil, plugin.ErrHandshake, ""},
		"tcp":      {nil, plugin.ErrHandshake, ""},
		"netrpc":   {nil, plugin.ErrHandshake, ""},
		"half":     {nil, plugin.ErrExited, "exited with status 0"},
		"fork":     {nil, plugin.ErrExited, "exited with status 0"},
		"silent":   {nil, nil, ""},
		"deaf":     {nil, nil, ""},
		"foreign":  {nil, plugin.ErrPeer, ""},
	}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := node
			if name == "silent" || name == "deaf" {
				node = newNode(t) // plugins are asked one at a time
				node.patience(t, plugin.Patience{Describe: time.Second})
			}
			if name == "linked" {
				test.content = linked(t)
			}
			var digest string
			var err error
			if test.content == nil {
				variant := everything
				variant.Before, variant.Path = name, filepath.Join(node.dir, "foreign.sock")
				if name == "foreign" {
					listenForeign(t, variant.Path)
				}
				digest = node.add(t, variant)
			} else if digest, err = node.store.Import(t.Context(), reader(test.content)); err != nil {
				t.Fatal(err)
			}
			_, err = node.launcher.Describe(t.Context(), digest)
			var not *plugin.NotAPluginError
			if !errors.As(err, &not) || not.Digest != digest {
				t.Fatalf("error %v", err)
			}
			if test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("error %q, want %q", err, test.is)
			}
			if !strings.Contains(err.Error(), test.line) {
				t.Errorf("error %q, want the line %q", err, test.line)
			}
			t.Log(err)
		})
	}
}

// linked returns a program that is linked to libraries of the machine, and only succeeds, whatever its name.
func linked(t *testing.T) []byte {
	t.Helper()
	const path = "/bin/true"
	program, err := elf.Open(path)
	if err != nil {
		t.Skipf("cannot run: %s: %v", path, err)
	}
	interpreted := slices.ContainsFunc(program.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
	_ = program.Close()
	if !interpreted {
		t.Skipf("cannot run: %s is linked to no library", path)
	}
	// Where it is one program of many in a file, the file goes by its name.
	if err := (&exec.Cmd{Path: path, Args: []string{"plugin"}}).Run(); err != nil {
		t.Skipf("cannot run: %s under another name: %v", path, err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// What is linked to libraries can be asked for its manifest, in which it asks for them; run without them it cannot be.
func TestLibrariesMustBeGranted(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	digest, err := node.store.Import(t.Context(), reader(linked(t)))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		grants []string
		is     error
		text   string
	}{
		"none": {nil, plugin.ErrExec, "execute-path"},
		"all":  {[]string{"/lib", "/lib64", "/usr/lib", "/usr/lib64"}, plugin.ErrExited, "exited with status 0"},
	} {
		s := spec(digest, everything, plugintest.Configuration{})
		s.Plugin.Grants[0].Grants = nil
		for _, path := range test.grants {
			if _, err := os.Stat(path); err == nil {
				s.Plugin.Grants[0].Grants = append(s.Plugin.Grants[0].Grants, &rolev1.Grant{Name: remit.ExecutePath, Parameters: map[string]string{"path": path}})
			}
		}
		prepared, err := node.launcher.Prepare(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := node.launcher.Launch(t.Context(), prepared, s, "/nowhere"); !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.text) {
			t.Errorf("with %s granted: error %v, want %v and %q", name, err, test.is, test.text)
		}
	}
	node.nothingLeft(t)
}

func TestDescribeNewerPlugin(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	variant := everything
	variant.Before = "newer"
	var version *store.VersionError
	if _, err := node.launcher.Describe(t.Context(), node.add(t, variant)); !errors.As(err, &version) || !version.UpgradeCore || version.Theirs != "2" {
		t.Errorf("error %v", err)
	}
	node.nothingLeft(t)
}

func TestLaunchWaitsForTheHandshake(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	variant := everything
	variant.Before = "silent"
	node.patience(t, plugin.Patience{Handshake: time.Second})
	s := spec(node.add(t, variant), variant, plugintest.Configuration{})
	remit, err := node.launcher.Prepare(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := node.launcher.Launch(t.Context(), remit, s, "/nowhere"); !errors.Is(err, plugin.ErrHandshakeTimeout) {
		t.Errorf("error %v", err)
	}
	node.nothingLeft(t)
}

// What the node cannot make for a process is not the role's fault, whatever the reason.
func TestWhatTheNodeCannotMakeIsNotTheRolesFault(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	s := spec(node.add(t, everything), everything, plugintest.Configuration{})
	remit, err := node.launcher.Prepare(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	instances := filepath.Join(node.dir, "run", "instances")
	if err := errors.Join(os.Rename(instances, instances+".away"), os.WriteFile(instances, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	_, err = node.launcher.Launch(t.Context(), remit, s, "/nowhere")
	var launch *plugin.LaunchError
	if !errors.As(err, &launch) || !errors.Is(err, syscall.ENOTDIR) || !launch.Node {
		t.Errorf("error %v, of the node: %t", err, launch != nil && launch.Node)
	}
}

func TestLaunchTellsWhyNot(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	variant := everything
	variant.Before = "exit"
	s := spec(node.add(t, variant), variant, plugintest.Configuration{})
	remit, err := node.launcher.Prepare(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	_, err = node.launcher.Launch(t.Context(), remit, s, "/nowhere")
	var launch *plugin.LaunchError
	if !errors.As(err, &launch) || !errors.Is(err, plugin.ErrExited) || launch.Plugin != "everything" {
		t.Fatalf("error %v", err)
	}
	if launch.Exit == nil || launch.Exit.Code != 7 || launch.Node {
		t.Errorf("exit %v", launch.Exit)
	}
	if want := "ended before it was started: exited with status 7; it last wrote: cannot find my own feet"; launch.Cause() != want {
		t.Errorf("cause %q", launch.Cause())
	}
	node.nothingLeft(t)
}

// listenForeign is a server that is not the instance, as the user who runs the tests.
func listenForeign(t *testing.T, path string) {
	t.Helper()
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
}
