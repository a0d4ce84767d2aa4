package plugin_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/core/inorder"
	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/plugin/plugintest"
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
	bin, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range inorder.Of(map[string]struct {
		content []byte
		is      error
		line    string
	}{
		"text": {[]byte("just a text\n"), plugin.ErrExec, ""},
		// What they need to run is not in the sandbox.
		"bin true": {bin, plugin.ErrExec, ""},
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
				node = newNode(t) // they take long, and plugins are asked one at a time
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

func TestDescribeNewerPlugin(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	variant := everything
	variant.Before = "newer"
	var version *plugin.VersionError
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
