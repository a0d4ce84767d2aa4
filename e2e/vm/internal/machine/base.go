package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/reeveproject/reeve/e2e/internal/build"
)

// Where things are in a guest.
const (
	// Programs is the directory of Reeve's programs, as `make install` lays them out.
	Programs = "/usr/lib/reeve"
	// StateDirectory is on a disk of its own, which is not encrypted and is kept when the machine is off.
	StateDirectory = "/var/lib/reeve"
	// Volume is the other disk, which a node may encrypt. The machine leaves it empty.
	Volume = "/dev/disk/by-id/virtio-volume"
)

// tools are the programs of this machine that a guest has, and where they are there. What Reeve runs is in /usr/sbin, where Debian has it.
var tools = []struct {
	name, at, debian string
	optional         bool
}{
	{name: "cryptsetup", at: "usr/sbin", debian: "cryptsetup-bin"},
	{name: "dmsetup", at: "usr/sbin", debian: "dmsetup", optional: true},
	{name: "mkfs.ext4", at: "usr/sbin", debian: "e2fsprogs"},
	{name: "tune2fs", at: "usr/sbin", debian: "e2fsprogs", optional: true},
	{name: "blkid", at: "usr/sbin", debian: "util-linux", optional: true},
	{name: "busybox", at: "bin", debian: "busybox-static"},
}

// applets are what the tests use of busybox, and what is good to have where one looks for what went wrong.
var applets = []string{
	"sh", "cat", "cp", "cut", "date", "dd", "df", "dmesg", "echo", "env", "find", "grep", "head", "hexdump", "id", "ip", "kill", "ln", "ls", "mkdir", "mount", "mv",
	"netstat", "od", "pidof", "ps", "rm", "sed", "sha256sum", "sleep", "sort", "stat", "sync", "tail", "test", "top", "touch", "tr", "true", "umount", "wc", "xargs", "xxd", "free",
}

// Base is what all machines have in common.
type Base struct {
	directory string
	kernel    *kernel
	initramfs string
	// system is the image of the disk with the programs, which guests only read.
	system string
	qemu   string
	swtpm  string
}

// NewBase makes what machines are made of. workspace is the directory of go.work; cache is kept from run to run; directory is the run's own, with a short path. The error is a *MissingError if this
// machine lacks something.
func NewBase(ctx context.Context, workspace, cache, directory string) (*Base, error) {
	if runtime.GOARCH != "amd64" || runtime.GOOS != "linux" {
		return nil, &MissingError{What: "the guest is a Linux machine of the architecture amd64, and has programs of this machine, which is " + runtime.GOOS + " on " + runtime.GOARCH}
	}
	b := &Base{directory: directory}
	var err error
	if b.qemu, err = find("qemu-system-x86_64", "qemu-system-x86"); err != nil {
		return nil, err
	}
	if b.swtpm, err = find("swtpm", "swtpm"); err != nil {
		return nil, err
	}
	staging := filepath.Join(directory, "system")
	// Before the kernel, which takes longest to get.
	if err := stageTools(staging); err != nil {
		return nil, err
	}
	if b.kernel, err = getKernel(ctx, cache); err != nil {
		return nil, err
	}
	if err := stageReeve(ctx, staging, workspace); err != nil {
		return nil, err
	}
	if b.initramfs, err = makeInitramfs(b.kernel, filepath.Join(staging, "sbin/init"), filepath.Join(directory, "initramfs")); err != nil {
		return nil, fmt.Errorf("make the initramfs: %w", err)
	}
	if err := stageSystem(staging); err != nil {
		return nil, err
	}
	b.system = filepath.Join(directory, "system.img")
	if err := makeDisk(ctx, b.system, "system", 320<<20, staging); err != nil {
		return nil, err
	}
	return b, os.RemoveAll(staging)
}

// find returns the path of a program of this machine, also of one for administrators that an ordinary user does not find.
func find(name, debian string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, directory := range []string{"/usr/sbin", "/sbin", "/usr/bin", "/bin"} {
		if path, err := exec.LookPath(filepath.Join(directory, name)); err == nil {
			return path, nil
		}
	}
	return "", &MissingError{What: "there is no program " + name + " on this machine (Debian's package " + debian + ")"}
}

// stageTools puts the tools and their libraries into the directory that becomes the system's disk.
func stageTools(staging string) error {
	var dynamic []string
	for _, tool := range tools {
		path, err := find(tool.name, tool.debian)
		if err != nil && tool.optional {
			continue
		}
		if err != nil {
			return err
		}
		if err := copyFile(path, filepath.Join(staging, tool.at, tool.name), 0o755); err != nil {
			return err
		}
		dynamic = append(dynamic, path)
	}
	// glibc loads libgcc_s when it ends a thread, as cryptsetup does.
	needed, err := libraries(dynamic, "libgcc_s.so.1", filepath.Base(interpreter))
	if err != nil {
		return err
	}
	for name, file := range needed {
		at := filepath.Join(staging, "lib/x86_64-linux-gnu", name)
		if name == filepath.Base(interpreter) {
			at = filepath.Join(staging, interpreter)
		}
		if err := copyFile(file, at, 0o755); err != nil {
			return err
		}
	}
	for _, applet := range applets {
		if err := os.Symlink("busybox", filepath.Join(staging, "bin", applet)); err != nil {
			return err
		}
	}
	return nil
}

// stageReeve builds Reeve's programs, as its packages have them, and the first process. Without symbol tables: a guest needs long to count the digest of a
// program, and does so more than once.
func stageReeve(ctx context.Context, staging, workspace string) error {
	reeve := filepath.Join(staging, Programs)
	plugins := []string{"consensus", "curator", "hostsfile"}
	var genesis []string
	groups := map[string][]string{
		filepath.Join(reeve) + "/":             {"./core/cmd/reeved", "./cli/cmd/reeve"},
		filepath.Join(staging, "sbin", "init"): {"./e2e/vm/internal/guest"},
	}
	for _, plugin := range plugins {
		at := filepath.Join(reeve, "plugins") + "/"
		groups[at] = append(groups[at], "./plugins/"+plugin)
		genesis = append(genesis, at+plugin)
	}
	for into, packages := range groups {
		if err := os.MkdirAll(filepath.Dir(into), 0o755); err != nil {
			return err
		}
		arguments := append(append([]string{"build"}, build.Flags...), "-o", into)
		if err := build.Go(ctx, workspace, []string{"GOWORK=" + filepath.Join(workspace, "go.work")}, append(arguments, packages...)...); err != nil {
			return err
		}
	}
	catalog := filepath.Join(reeve, "plugins", "genesis.json")
	if _, err := output(ctx, filepath.Join(reeve, "reeved"), append([]string{"genesis", "--output", catalog}, genesis...)...); err != nil {
		return fmt.Errorf("make the genesis catalog: %w", err)
	}
	return nil
}

// stageSystem puts the rest of a system beside the programs.
func stageSystem(staging string) error {
	for path, content := range map[string]string{
		"etc/hosts":      "127.0.0.1\tlocalhost\n",
		"etc/passwd":     "root:x:0:0:root:/root:/bin/sh\n",
		"etc/group":      "root:x:0:\n",
		"etc/hostname":   "machine\n",
		"etc/ld.so.conf": strings.Join(libraryDirectories, "\n") + "\n",
	} {
		if err := writeFile(filepath.Join(staging, path), []byte(content), 0o644); err != nil {
			return err
		}
	}
	if configuration, err := os.ReadFile("/etc/mke2fs.conf"); err == nil {
		if err := writeFile(filepath.Join(staging, "etc/mke2fs.conf"), configuration, 0o644); err != nil {
			return err
		}
	}
	for _, directory := range []string{"dev", "proc", "sys", "run", "tmp", "root", "mnt", StateDirectory} {
		if err := os.MkdirAll(filepath.Join(staging, directory), 0o755); err != nil {
			return err
		}
	}
	// The umask has no say in it: roles run as users of their own.
	return filepath.WalkDir(staging, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			return os.Chmod(path, 0o755)
		}
		return err
	})
}

// makeInitramfs writes the archive with which the guest begins.
func makeInitramfs(k *kernel, guest, path string) (string, error) {
	modules, err := orderedModules(k.modules, wantedModules)
	if err != nil {
		return "", err
	}
	file, err := os.Create(path)
	if err != nil {
		return "", err
	}
	a := newArchive(file)
	for _, directory := range []string{"dev", "proc", "sys", "system", "modules"} {
		a.directory(directory)
	}
	a.console()
	a.copy("init", 0o755, guest)
	var list strings.Builder
	for _, module := range modules {
		a.copy("modules/"+filepath.Base(module), 0o644, module)
		list.WriteString(filepath.Base(module) + "\n")
	}
	a.file("modules/list", 0o644, []byte(list.String()))
	return path, errors.Join(a.close(), file.Close())
}

// makeDisk makes the image of a disk with an ext4 file system, and puts what is in a directory on it; empty: nothing.
func makeDisk(ctx context.Context, path, label string, size int64, content string) error {
	mkfs, err := find("mkfs.ext4", "e2fsprogs")
	if err != nil {
		return err
	}
	if err := makeImage(path, size); err != nil {
		return err
	}
	arguments := []string{"-q", "-F", "-L", label, "-E", "root_owner=0:0,lazy_itable_init=1", "-m", "0"}
	if content != "" {
		arguments = append(arguments, "-d", content)
	}
	_, err = output(ctx, mkfs, append(arguments, path)...)
	return err
}

// makeImage makes the image of an empty disk.
func makeImage(path string, size int64) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(file.Truncate(size), file.Close())
}

func copyFile(from, to string, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	target, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Chmod(mode), target.Close())
}

func writeFile(path string, content []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, content, mode)
}
