//go:build soak

package install_test

import (
	"crypto/sha256"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// machines are the architectures of the packages, by Debian's names.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

func TestPackages(t *testing.T) {
	for _, tool := range []string{"dpkg", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(tool + " is not installed: the packages are not tested")
		}
	}
	place := root(t)
	runMake(t, "PACKAGES="+place, "BIN="+filepath.Join(place, "bin"), "package")
	packages := make(map[string]string)
	for arch, machine := range machines {
		file := filepath.Join(place, "reeve_1.2.3+4.g0123abc_"+arch+".deb")
		packages[arch] = file
		for field, want := range map[string]string{"Package": "reeve", "Version": "1.2.3+4.g0123abc", "Architecture": arch} {
			if got := strings.TrimSpace(run(t, exec.Command("dpkg-deb", "--field", file, field))); got != want {
				t.Errorf("%s: %s is %q, want %q", arch, field, got, want)
			}
		}
		content := filepath.Join(place, arch+"-content")
		run(t, exec.Command("dpkg-deb", "--extract", file, content))
		checkContent(t, content, machine)
	}
	testInOwnRoot(t, packages[runtime.GOARCH])
}

// checkContent checks what is in a package.
func checkContent(t *testing.T, content string, machine elf.Machine) {
	t.Helper()
	got := files(t, content)
	for name, want := range installed {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
		delete(got, name)
		if !strings.HasPrefix(name, "/usr/lib/reeve/") || name == genesisFile {
			continue
		}
		if filepath.Dir(name) == filepath.Dir(genesisFile) {
			knows(t, content, name)
		}
		program, err := elf.Open(filepath.Join(content, name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if program.Machine != machine {
			t.Errorf("%s is for %s, want %s", name, program.Machine, machine)
		}
		// A role is launched with nothing of the machine's libraries.
		if libraries, err := program.ImportedLibraries(); err == nil && len(libraries) > 0 {
			t.Errorf("%s needs %v", name, libraries)
		}
		_ = program.Close()
	}
	licences := 0
	for name := range got {
		switch {
		case strings.HasPrefix(name, "/usr/share/doc/reeve/third-party/"):
			licences++
		case name != "/usr/share/zsh/vendor-completions/_reeve" && name != "/usr/share/doc/reeve/copyright":
			t.Errorf("the package holds %s", name)
		}
	}
	if licences < 20 {
		t.Errorf("the package holds %d licences of others' modules", licences)
	}
	if info, err := os.Stat(filepath.Join(content, "etc/reeve")); err != nil || !info.IsDir() {
		t.Errorf("the package has no directory for the parameters: %v", err)
	}
}

// genesisFile is the catalog with the digests of the built-in plugins beside it.
const genesisFile = "/usr/lib/reeve/plugins/genesis.json"

// knows checks that the genesis catalog of a package has the digest of a plugin in it: that of this platform's executable.
func knows(t *testing.T, content, plugin string) {
	t.Helper()
	genesis, err := os.ReadFile(filepath.Join(content, genesisFile))
	if err != nil {
		t.Fatal(err)
	}
	executable, err := os.ReadFile(filepath.Join(content, plugin))
	if err != nil {
		t.Fatal(err)
	}
	if digest := fmt.Sprintf("sha256:%x", sha256.Sum256(executable)); !strings.Contains(string(genesis), digest) {
		t.Errorf("the genesis catalog does not know %s as %s", plugin, digest)
	}
}

// testInOwnRoot installs the package into a root of its own, and removes and purges it.
func testInOwnRoot(t *testing.T, file string) {
	t.Helper()
	if file == "" {
		t.Logf("there is no package for %s: none is installed", runtime.GOARCH)
		return
	}
	machine := filepath.Join(root(t), "m")
	for _, directory := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates"} {
		if err := os.MkdirAll(filepath.Join(machine, directory), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(machine, "var/lib/dpkg/status"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	dpkg := func(arguments ...string) string {
		t.Helper()
		command := exec.Command("dpkg", append([]string{"--root=" + machine, "--force-script-chrootless", "--log=" + machine + "/log"}, arguments...)...)
		command.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"}
		if os.Geteuid() != 0 {
			// In a user namespace of its own dpkg is root, and its files are ours.
			command.SysProcAttr = &syscall.SysProcAttr{
				Cloneflags:  syscall.CLONE_NEWUSER,
				UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}},
				GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}},
			}
		}
		return run(t, command)
	}
	if said := dpkg("--install", file); !strings.Contains(said, "reeve init --help") {
		t.Errorf("the installation does not say what to do next: %s", said)
	}
	// The programs are where people and the service look for them.
	if said := run(t, exec.Command(filepath.Join(machine, "usr/bin/reeve"), "version")); !strings.Contains(said, version) {
		t.Errorf("reeve version: %s", said)
	}
	if said := run(t, exec.Command(filepath.Join(machine, "usr/sbin/reeved"), "--version")); !strings.Contains(said, version) {
		t.Errorf("reeved --version: %s", said)
	}
	data := map[string]string{"etc/reeve/node.yaml": "version: reeve.node.v1\n", "var/lib/reeve/data/volume.json": "{}", "var/log/reeve/reeved.log": "x"}
	for name, content := range data {
		path := filepath.Join(machine, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if said := dpkg("--install", file); strings.Contains(said, "reeve init --help") {
		t.Errorf("a machine that is set up is told to be: %s", said)
	}
	for _, how := range []string{"--remove", "--purge"} {
		said := dpkg(how, "reeve")
		var left []string
		for name := range files(t, machine) {
			if !strings.HasPrefix(name, "/var/lib/dpkg/") && name != "/log" {
				left = append(left, strings.TrimPrefix(name, "/"))
			}
		}
		slices.Sort(left)
		if want := []string{"etc/reeve/node.yaml", "var/lib/reeve/data/volume.json", "var/log/reeve/reeved.log"}; !slices.Equal(left, want) {
			t.Errorf("%s left %q, want %q", how, left, want)
		}
		for _, kept := range []string{"/etc/reeve", "/var/lib/reeve", "/var/log/reeve"} {
			if !strings.Contains(said, machine+kept+" is left as it is") {
				t.Errorf("%s does not say that it leaves %s: %s", how, kept, said)
			}
		}
	}
}
