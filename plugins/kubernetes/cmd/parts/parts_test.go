package main

import (
	"archive/zip"
	"bytes"
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The module that the tests build, which a proxy of modules in a directory serves.
const tool = "example.org/tool"

var toolFiles = map[string]string{
	"go.mod":               "module example.org/tool\n\ngo 1.26.0\n",
	"version/version.go":   "package version\n\nvar Version = \"unknown\"\n",
	"greeting/greeting.go": "package greeting\n\nconst Text = \"hello\"\n",
	"cmd/hello/main.go":    "package main\n\nimport (\n\t\"example.org/tool/greeting\"\n\t\"example.org/tool/version\"\n)\n\nfunc main() { print(greeting.Text, \" \", version.Version) }\n",
	"cmd/bye/main.go":      "package main\n\nfunc main() { print(\"bye\") }\n",
	"cmd/misspelt/main.go": "package main\n\nfunc main() { pirnt(\"bye\") }\n",
	"cmd/tagged/main.go":   "package main\n\nfunc main() { print(tag) }\n",
	"cmd/tagged/tag.go":    "//go:build tagged\n\npackage main\n\nconst tag = \"tagged\"\n",
	"cmd/tagged/other.go":  "//go:build !tagged\n\npackage main\n\nconst tag = \"untagged\"\n",
	"vendor/modules.txt":   "# example.org/other v1.0.0\n",
}

// serve makes a proxy of modules of a directory, tells go to use it, and returns the module with its sum.
func serve(t *testing.T) source {
	t.Helper()
	proxy, modules := t.TempDir(), t.TempDir()
	for name, value := range map[string]string{"GOPROXY": "file://" + filepath.ToSlash(proxy), "GOSUMDB": "off", "GOMODCACHE": modules, "GOFLAGS": "-mod=vendor", "GOTOOLCHAIN": "local"} {
		t.Setenv(name, value)
	}
	t.Cleanup(func() {
		// Its directories may not be written to, so that they cannot be removed as others are.
		if output, err := exec.Command("go", "clean", "-modcache").CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, output)
		}
	})
	directory := filepath.Join(proxy, tool, "@v")
	if err := os.MkdirAll(directory, 0o755); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	w := zip.NewWriter(&archive)
	for name, text := range toolFiles {
		file, err := w.Create(tool + "@v1.0.0/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"v1.0.0.info": []byte(`{"Version": "v1.0.0"}`), "v1.0.0.mod": []byte(toolFiles["go.mod"]), "v1.0.0.zip": archive.Bytes(),
	} {
		if err := os.WriteFile(filepath.Join(directory, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, _, err := runGo(t.Context(), t.TempDir(), nil, "mod", "download", "-json", tool+"@v1.0.0")
	var got struct{ Sum string }
	if err := errors.Join(err, json.Unmarshal([]byte(text), &got)); err != nil {
		t.Fatal(err)
	}
	return source{tool, "v1.0.0", got.Sum}
}

// hello is a part that is made of the module.
func hello(of source) part {
	return part{name: "hello", source: of, packages: []string{"./cmd/hello", "./cmd/bye"}, variables: map[string]string{tool + "/version.Version": of.version}}
}

// into builds parts and returns what was said.
func into(t *testing.T, directory string, parts ...part) (string, error) {
	t.Helper()
	var said strings.Builder
	b := builder{directory: directory, say: func(format string, arguments ...any) { fmt.Fprintf(&said, format+"\n", arguments...) }}
	err := b.build(t.Context(), parts)
	return said.String(), err
}

// mustBuild builds parts, and checks whether it had to.
func mustBuild(t *testing.T, anew bool, directory string, parts ...part) {
	t.Helper()
	said, err := into(t, directory, parts...)
	if err != nil {
		t.Fatal(err)
	}
	if built := strings.Contains(said, "built in"); built != anew {
		t.Errorf("that it is built anew is %v:\n%s", built, said)
	}
}

// output runs what was built.
func output(t *testing.T, directory, name string) string {
	t.Helper()
	text, err := exec.Command(filepath.Join(directory, name)).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", name, err, text)
	}
	return string(text)
}

func names(t *testing.T, directory string) []string {
	t.Helper()
	entries, err := os.ReadDir(directory)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func TestBuild(t *testing.T) {
	wanted := hello(serve(t))
	directory := filepath.Join(t.TempDir(), "parts")
	mustBuild(t, true, directory, wanted)
	if got := output(t, directory, "hello") + ", " + output(t, directory, "bye"); got != "hello v1.0.0, bye" {
		t.Errorf("they say %q", got)
	}
	if got := names(t, directory); !slices.Equal(got, []string{"bye", "hello", "parts.json"}) {
		t.Errorf("there are %q", got)
	}
	mustBuild(t, false, directory, wanted)

	// Whatever is not as it was is built, and what a build has left that was killed is removed.
	if err := os.WriteFile(filepath.Join(directory, "bye"), []byte("#!/bin/sh\necho welcome\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(directory, unfinished+"1", "built"), 0o755); err != nil {
		t.Fatal(err)
	}
	mustBuild(t, true, directory, wanted)
	if got := names(t, directory); !slices.Equal(got, []string{"bye", "hello", "parts.json"}) || output(t, directory, "bye") != "bye" {
		t.Errorf("there are %q", got)
	}
	if err := os.Remove(filepath.Join(directory, "hello")); err != nil {
		t.Fatal(err)
	}
	mustBuild(t, true, directory, wanted)
	wanted.variables = map[string]string{tool + "/version.Version": "v1.0.0-ours"}
	mustBuild(t, true, directory, wanted)
	if got := output(t, directory, "hello"); got != "hello v1.0.0-ours" {
		t.Errorf("it says %q", got)
	}
	wanted.replaced = map[string]string{"greeting/greeting.go": "package greeting\n\nconst Text = \"good morning\"\n"}
	mustBuild(t, true, directory, wanted)
	if got := output(t, directory, "hello"); got != "good morning v1.0.0-ours" {
		t.Errorf("it says %q", got)
	}
	mustBuild(t, false, directory, wanted)
	if err := os.WriteFile(filepath.Join(directory, recordFile), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	mustBuild(t, true, directory, wanted)

	tagged := part{name: "tagged", source: wanted.source, packages: []string{"./cmd/tagged"}, tags: []string{"tagged"}}
	mustBuild(t, true, directory, wanted, tagged)
	if got := output(t, directory, "tagged"); got != "tagged" {
		t.Errorf("it says %q", got)
	}
	mustBuild(t, false, directory, wanted, tagged)
}

func TestImage(t *testing.T) {
	wanted := hello(serve(t))
	wanted.packages, wanted.archive, wanted.reference = []string{"./cmd/hello"}, "hello.tar", "example.org/hello:1"
	directory := t.TempDir()
	mustBuild(t, true, directory, wanted)
	if got := names(t, directory); !slices.Equal(got, []string{"hello.tar", "parts.json"}) {
		t.Errorf("there are %q", got)
	}
	built, err := os.ReadFile(filepath.Join(directory, "hello.tar"))
	if err != nil {
		t.Fatal(err)
	}
	mustBuild(t, false, directory, wanted)

	// The same program by itself makes the same image.
	wanted.archive = ""
	mustBuild(t, true, directory, wanted)
	file := filepath.Join(t.TempDir(), "hello.tar")
	c := command()
	c.SetArgs([]string{"image", "--reference", "example.org/hello:1", "--output", file, filepath.Join(directory, "hello")})
	if err := c.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if made, err := os.ReadFile(file); err != nil || !bytes.Equal(made, built) {
		t.Errorf("it is another one: %v", err)
	}
	c.SetArgs([]string{"image", "--reference", "good morning", "--output", file, filepath.Join(directory, "hello")})
	if err := c.ExecuteContext(t.Context()); err == nil {
		t.Error("an image is made without a name")
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("half of an image is left")
	}
}

func TestWhatCannotBeBuilt(t *testing.T) {
	good := hello(serve(t))
	for what, test := range map[string]struct {
		change func(*part)
		says   []string
	}{
		"another sum":        {func(p *part) { p.sum = "h1:AAAA" }, []string{"h1:AAAA", good.sum, "GOPROXY"}},
		"no such version":    {func(p *part) { p.version = "v1.0.1" }, []string{"v1.0.1", "GOPROXY"}},
		"it does not build":  {func(p *part) { p.packages = []string{"./cmd/misspelt"} }, []string{"undefined: pirnt"}},
		"no such file in it": {func(p *part) { p.replaced = map[string]string{"nothing.go": ""} }, []string{"nothing.go"}},
		"no such library":    {func(p *part) { p.c = []string{"no-such-library"} }, []string{"no-such-library", "apt-get install gcc libc6-dev libseccomp-dev pkg-config"}},
	} {
		t.Run(what, func(t *testing.T) {
			bad := good
			test.change(&bad)
			directory := t.TempDir()
			_, err := into(t, directory, bad)
			if err == nil {
				t.Fatal("it is built")
			}
			for _, text := range append(test.says, "hello") {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%q is not said: %v", text, err)
				}
			}
			if got := names(t, directory); len(got) > 0 {
				t.Errorf("%q is left", got)
			}
		})
	}
	t.Run("no compiler", func(t *testing.T) {
		bad := good
		bad.c = []string{"libseccomp"}
		t.Setenv("CC", "no-such-compiler")
		t.Setenv("PKG_CONFIG", "no-such-program")
		if _, err := into(t, t.TempDir(), bad); err == nil || !strings.Contains(err.Error(), "missing: no-such-compiler, no-such-program, libseccomp (on Debian: apt-get") {
			t.Errorf("it says %v", err)
		}
	})
	t.Run("for another machine", func(t *testing.T) {
		bad := good
		bad.c = []string{"libseccomp"}
		t.Setenv("CC", "")
		other := map[string]string{"amd64": "arm64"}[runtime.GOARCH]
		if other == "" {
			other = "amd64"
		}
		b := builder{directory: t.TempDir(), architecture: other, say: func(string, ...any) {}}
		if err := b.build(t.Context(), []part{bad}); err == nil || !strings.Contains(err.Error(), "in CC") {
			t.Errorf("it says %v", err)
		}
		// What has no C in it is just built.
		if err := b.build(t.Context(), []part{good}); err != nil {
			t.Fatal(err)
		}
		file, err := elf.Open(filepath.Join(b.directory, "hello"))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if file.Machine != map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[other] {
			t.Errorf("it is for %s", file.Machine)
		}
	})
}

// TestOneAtATime builds while another process does.
func TestOneAtATime(t *testing.T) {
	wanted := hello(serve(t))
	directory := t.TempDir()
	other, err := os.Open(directory)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := unix.Flock(int(other.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}

	stopped, stop := context.WithCancel(t.Context())
	impatient := builder{directory: directory, say: func(string, ...any) { stop() }}
	if err := impatient.build(stopped, []part{wanted}); !errors.Is(err, context.Canceled) {
		t.Errorf("a build that is ended while it waits says %v", err)
	}

	said := make(chan string, 10)
	patient := builder{directory: directory, say: func(format string, arguments ...any) { said <- fmt.Sprintf(format, arguments...) }}
	done := make(chan error, 1)
	go func() { done <- patient.build(t.Context(), []part{wanted}) }()
	select {
	case text := <-said:
		if !strings.Contains(text, "waiting for another build") {
			t.Errorf("it says %q", text)
		}
	case <-time.After(time.Minute):
		t.Fatal("it says nothing")
	}
	if got := names(t, directory); len(got) > 0 {
		t.Errorf("there are %q", got)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := output(t, directory, "hello"); got != "hello v1.0.0" {
		t.Errorf("it says %q", got)
	}
}

// TestParts holds what a worker looks for.
func TestParts(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, part := range parts() {
		files = append(files, part.files()...)
		if !strings.HasPrefix(part.sum, "h1:") || len(part.sum) != 47 {
			t.Errorf("the sum of %s is %q", part.module, part.sum)
		}
		if row := fmt.Sprintf("| `%s` | %s |", part.module, part.version); !strings.Contains(string(readme), row) {
			t.Errorf("README.md does not have the line: %s", row)
		}
	}
	slices.Sort(files)
	want := []string{"containerd", "containerd-shim-runc-v2", "coredns.tar", "ctr", "host-local", "portmap", "ptp", "runc"}
	if !slices.Equal(files, want) {
		t.Errorf("the parts are %q", files)
	}
}
