package worker

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/reeveproject/reeve/plugins/kubernetes/internal/machine"
)

// TestContainerdEndsWithoutCRI starts containerd in a user namespace that has no inotify instance. The part that kubelet speaks to does not load there, and containerd must end,
// so that it is started again.
func TestContainerdEndsWithoutCRI(t *testing.T) {
	parts, err := filepath.Abs(builtParts)
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(parts, containerd)
	if _, err := os.Stat(program); err != nil {
		t.Skip("there is no containerd in bin/kubernetes, which `make deps-kubernetes` builds")
	}
	if os.Geteuid() != 0 {
		t.Skip("containerd takes root")
	}
	directory := t.TempDir()
	w := &work{
		Configuration: &Configuration{}, groups: &machine.Cgroups{}, parts: make(map[string]string),
		at: paths{node: "node", data: filepath.Join(directory, "data"), state: filepath.Join(directory, "state"), run: filepath.Join(directory, "run")},
	}
	for _, name := range []string{containerd, shim, runc, ptp, "host-local", "portmap"} {
		w.parts[name] = filepath.Join(parts, name)
	}
	configuration := filepath.Join(directory, "containerd.toml")
	if err := os.WriteFile(configuration, []byte(w.containerdConfiguration()), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), "sh", "-c", `echo 0 >/proc/sys/user/max_inotify_instances && exec "$0" --config "$1"`, program, configuration)
	root := []syscall.SysProcIDMap{{Size: 1}}
	command.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS, UidMappings: root, GidMappings: root, Pdeathsig: syscall.SIGKILL,
	}
	output, err := command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Skipf("no user namespace can be made here: %v", err)
	}
	var said strings.Builder
	for lines := bufio.NewScanner(output); lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), "containerd successfully booted") {
			t.Error("containerd goes on without it")
			_ = command.Process.Kill()
		}
	}
	err = command.Wait()
	if text := said.String(); err == nil || !strings.Contains(text, "load required plugin io.containerd.grpc.v1.cri") || !strings.Contains(text, "inotify") {
		t.Errorf("containerd ended with %v, and wrote\n%s", err, text)
	}
}
