package kubernetes_test

import (
	"context"
	"crypto/rand"
	"debug/elf"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/eventually"
)

// partsDirectory builds what a worker runs besides the plugin. A machine that cannot, says what it lacks: where the test runs as root, .ci/run has installed that.
func partsDirectory(t *testing.T) string {
	t.Helper()
	directory, err := shared.Programs.KubernetesParts(t.Context())
	if err != nil && os.Geteuid() != 0 && strings.Contains(err.Error(), "apt-get install") {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return directory
}

// TestParts runs every part.
func TestParts(t *testing.T) {
	parts := partsDirectory(t)
	versions := make(map[string]string)
	text, err := os.ReadFile(filepath.Join(parts, "parts.json"))
	if err != nil {
		t.Fatal(err)
	}
	var records map[string]struct {
		Version string            `json:"version"`
		Files   map[string]string `json:"files"`
	}
	if err := json.Unmarshal(text, &records); err != nil {
		t.Fatal(err)
	}
	for _, record := range records {
		for name := range record.Files {
			versions[name] = record.Version
		}
	}
	for name, arguments := range map[string][]string{
		"containerd": {"--version"}, "containerd-shim-runc-v2": {"-v"}, "ctr": {"--version"}, "runc": {"--version"}, "host-local": nil, "portmap": nil, "ptp": nil,
	} {
		program := filepath.Join(parts, name)
		// A plugin that is called without anything says on its standard error what it is.
		output, err := exec.CommandContext(t.Context(), program, arguments...).CombinedOutput()
		if arguments != nil && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if want := strings.TrimPrefix(versions[name], "v"); want == "" || !strings.Contains(string(output), want) {
			t.Errorf("%s is of the version %q and says:\n%s", name, want, output)
		}
		file, err := elf.Open(program)
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(file.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) || file.Section(".symtab") != nil {
			t.Errorf("%s is not static, or has its symbols", name)
		}
		_ = file.Close()
	}
}

// engine is a containerd of the test's own.
type engine struct {
	parts, address string
}

// ctr runs ctr, and returns what it prints on its standard output.
func (e engine) ctr(t *testing.T, arguments ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(e.parts, "ctr"), append([]string{"--address", e.address, "--namespace", "reeve-e2e"}, arguments...)...)
	var problems strings.Builder
	command.Stderr = &problems
	output, err := command.Output()
	if err != nil {
		err = fmt.Errorf("ctr %s: %w: %s%s", strings.Join(arguments, " "), err, output, problems.String())
	}
	return string(output), err
}

func (e engine) mustCtr(t *testing.T, arguments ...string) string {
	t.Helper()
	output, err := e.ctr(t, arguments...)
	if err != nil {
		t.Fatal(err)
	}
	return output
}

// newEngine starts a containerd without anything of Kubernetes in it.
func newEngine(t *testing.T, parts string) engine {
	t.Helper()
	// containerd takes no socket_dir that is longer than 42 characters.
	directory, err := os.MkdirTemp(shared.Base, "c")
	if err != nil {
		t.Fatal(err)
	}
	e := engine{parts: parts, address: filepath.Join(directory, "socket")}
	file := filepath.Join(directory, "config.toml")
	configuration := fmt.Sprintf("version = 3\nroot = %q\nstate = %q\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\", \"io.containerd.cri.v1.images\", \"io.containerd.cri.v1.runtime\", \"io.containerd.nri.v1.nri\"]\n[grpc]\naddress = %q\n[plugins.'io.containerd.internal.v1.opt']\npath = %q\n[plugins.'io.containerd.shim.v1.manager']\nsocket_dir = %q\n",
		filepath.Join(directory, "root"), filepath.Join(directory, "state"), e.address, filepath.Join(directory, "opt"), filepath.Join(directory, "s"))
	if err := os.WriteFile(file, []byte(configuration), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(directory, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	command := exec.Command(filepath.Join(parts, "containerd"), "--config", file)
	command.Env = []string{"PATH=" + parts + ":/usr/sbin:/usr/bin:/sbin:/bin"}
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Signal(os.Interrupt)
		if err := command.Wait(); err != nil || t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("containerd ended: %v\n%s", err, text)
		}
	})
	eventually.True(t, time.Minute, "containerd answers", func() (bool, string) {
		_, err := e.ctr(t, "version")
		return err == nil, fmt.Sprint(err)
	})
	return e
}

// TestImages imports the images into a containerd, and runs them.
func TestImages(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("containerd takes root")
	}
	if output, err := exec.Command("unshare", "--mount", "--pid", "--fork", "true").CombinedOutput(); err != nil {
		t.Skipf("no containers can be made here: %v: %s", err, output)
	}
	e := newEngine(t, partsDirectory(t))
	pause := filepath.Join(t.TempDir(), "pause.tar")
	if err := shared.Programs.KubernetesPause(t.Context(), pause); err != nil {
		t.Fatal(err)
	}
	// Copies, and no overlay: the test's directory may be in one itself.
	for _, archive := range []string{pause, filepath.Join(e.parts, "coredns.tar")} {
		e.mustCtr(t, "images", "import", "--local", "--snapshotter", "native", archive)
	}
	var coredns string
	references := strings.Fields(e.mustCtr(t, "images", "list", "--quiet"))
	for _, reference := range references {
		if strings.HasPrefix(reference, "reeve.internal/coredns:v") {
			coredns = reference
		}
	}
	if len(references) != 2 || coredns == "" || !slices.Contains(references, "reeve.internal/pause:1") {
		t.Fatalf("the images are %q", references)
	}
	unique := strings.ToLower(rand.Text())
	run := func(name string, arguments ...string) []string {
		return append([]string{"run", "--snapshotter", "native", "--cgroup", "/reeve-e2e-" + unique + "-" + name}, arguments...)
	}
	if output := e.mustCtr(t, run("coredns", "--rm", coredns, "coredns", "/coredns", "-version")...); !strings.Contains(output, "CoreDNS-"+strings.TrimPrefix(coredns, "reeve.internal/coredns:v")) {
		t.Errorf("CoreDNS says:\n%s", output)
	}

	e.mustCtr(t, run("pause", "--detach", "reeve.internal/pause:1", "pause")...)
	t.Cleanup(func() {
		// The test may be over because its context is.
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = exec.CommandContext(ctx, filepath.Join(e.parts, "ctr"), "--address", e.address, "--namespace", "reeve-e2e", "tasks", "delete", "--force", "pause").Run()
	})
	if output := e.mustCtr(t, "tasks", "list"); !strings.Contains(output, "RUNNING") {
		t.Fatalf("the tasks are:\n%s", output)
	}
	eventually.True(t, time.Minute, "the first process of a container ends by SIGTERM", func() (bool, string) {
		// The kernel drops a signal that comes before the first process of a container handles it, and there is none to send once it has ended.
		_, _ = e.ctr(t, "tasks", "kill", "--signal", "SIGTERM", "pause")
		output := e.mustCtr(t, "tasks", "list")
		return strings.Contains(output, "STOPPED"), output
	})
	// Its exit status is that of ctr.
	e.mustCtr(t, "tasks", "delete", "pause")
}
