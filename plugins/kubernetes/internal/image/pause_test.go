package image

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// deadline is how long a machine that is busy with other things may take for what takes a millisecond.
const deadline = time.Minute

// eventually waits until something is so.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(deadline); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after %s it is still not so: %s", deadline, what)
		}
	}
}

// TestPauseIsWhatItWas holds the machine code to what was tried. Who changes it on purpose changes PauseReference too: nodes have the image of that name.
func TestPauseIsWhatItWas(t *testing.T) {
	t.Parallel()
	for architecture, want := range map[string]string{
		"amd64": "0a369c3cfa5d6861ffe250d4c7d714027bdd1223ddc292eb16d3d988a4ad5e1c",
		"arm64": "7a70148d8b060d672ef041493dffd2faff0b0b554515bd885edb6234aabcdac8",
	} {
		executable, err := pause(architecture)
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(executable); hex.EncodeToString(sum[:]) != want {
			t.Errorf("%s: the pause program is another one: %x", architecture, sum)
		}
	}
	if _, err := Pause("mips"); err == nil {
		t.Error("there is a pause image for mips")
	}
}

// TestPauseIsAnExecutable reads the file as tools do.
func TestPauseIsAnExecutable(t *testing.T) {
	t.Parallel()
	for architecture, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		executable, err := pause(architecture)
		if err != nil {
			t.Fatal(err)
		}
		file, err := elf.NewFile(bytes.NewReader(executable))
		if err != nil {
			t.Fatal(err)
		}
		if file.Machine != machine || file.Type != elf.ET_EXEC || file.Class != elf.ELFCLASS64 || file.Data != elf.ELFDATA2LSB {
			t.Errorf("%s: the header says %v", architecture, file.FileHeader)
		}
		if len(file.Progs) != 2 {
			t.Fatalf("%s: it has %d program headers", architecture, len(file.Progs))
		}
		load, stack := file.Progs[0], file.Progs[1]
		if load.Type != elf.PT_LOAD || load.Flags != elf.PF_R|elf.PF_X || load.Filesz != uint64(len(executable)) || load.Memsz != load.Filesz || load.Off != 0 {
			t.Errorf("%s: what is loaded of %d bytes is %v", architecture, len(executable), load.ProgHeader)
		}
		if stack.Type != elf.PT_GNU_STACK || stack.Flags != elf.PF_R|elf.PF_W {
			t.Errorf("%s: its stack is %v", architecture, stack.ProgHeader)
		}
		if file.Entry != load.Vaddr+pauseCode {
			t.Errorf("%s: it begins at %#x", architecture, file.Entry)
		}
	}
}

// program writes the pause program for an architecture into a file.
func program(t *testing.T, architecture string) string {
	t.Helper()
	executable, err := pause(architecture)
	if err != nil {
		t.Skip(err)
	}
	name := filepath.Join(t.TempDir(), "pause")
	// What another test starts at this moment must not have the file open for writing as well: then it could not be executed.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(name, executable, 0o700); err != nil {
		t.Fatal(err)
	}
	return name
}

// pausing is a pause program that runs.
type pausing struct {
	*exec.Cmd
	ended chan struct{}
}

func start(t *testing.T, command *exec.Cmd) *pausing {
	t.Helper()
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	p := &pausing{command, make(chan struct{})}
	go func() {
		defer close(p.ended)
		_ = command.Wait() // what there is to know is in the state of the process
	}()
	t.Cleanup(func() {
		_ = command.Process.Kill()
		<-p.ended
	})
	return p
}

// status returns a field of the status that the kernel gives of the process.
func (p *pausing) status(field string) string { return status(p.Process.Pid, field) }

func status(pid int, field string) string {
	file, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return ""
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if name, value, _ := strings.Cut(lines.Text(), ":"); name == field {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// waiting is how the kernel shows rt_sigtimedwait(set, NULL, NULL, 8).
var waiting = map[string]string{"amd64": "128 0x4000d0 0x0 0x0 0x8 ", "arm64": "137 0x4000d0 0x0 0x0 0x8 "}

// waits waits until the process has prepared itself and waits. While it does, the kernel does not show the signals as blocked that it waits for.
func (p *pausing) waits(t *testing.T) {
	t.Helper()
	eventually(t, "it waits for a signal, and ignores SIGCHLD", func() bool {
		call, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", p.Process.Pid))
		ignored, err2 := strconv.ParseUint(p.status("SigIgn"), 16, 64)
		return err == nil && err2 == nil && ignored&(1<<(syscall.SIGCHLD-1)) != 0 && strings.HasPrefix(string(call), waiting[runtime.GOARCH])
	})
}

// isEndedBy sends a signal, and waits until the process has ended of its own accord.
func (p *pausing) isEndedBy(t *testing.T, signal syscall.Signal) {
	t.Helper()
	if err := p.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.ended:
	case <-time.After(deadline):
		t.Fatalf("it does not end by %s", signal)
	}
	if !p.ProcessState.Exited() || p.ProcessState.ExitCode() != 0 {
		t.Errorf("by %s it ends with %s", signal, p.ProcessState)
	}
}

// TestPauseWaits runs the program until it is asked to end.
func TestPauseWaits(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		p := start(t, exec.Command(program(t, runtime.GOARCH)))
		p.waits(t)
		// A signal that stops it ends its system call when it goes on.
		if err := p.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is stopped", func() bool { return strings.HasPrefix(p.status("State"), "T") })
		if err := p.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		p.waits(t)
		p.isEndedBy(t, signal)
	}
}

// TestPauseIsTheFirstOfANamespace runs it as a pod does that shares its process namespace.
func TestPauseIsTheFirstOfANamespace(t *testing.T) {
	t.Parallel()
	nsenter, err := exec.LookPath("nsenter")
	if os.Getuid() != 0 || err != nil {
		t.Skip("it takes root and nsenter (util-linux)")
	}
	if err := exec.Command("unshare", "--pid", "--fork", "true").Run(); err != nil {
		t.Skipf("no process namespace can be made here: %v", err)
	}
	command := exec.Command(program(t, runtime.GOARCH))
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	p := start(t, command)
	p.waits(t)

	// A process whose parent has ended, and which ends when the other end of its standard input is closed.
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer write.Close()
	shell := exec.Command(nsenter, "--target", strconv.Itoa(p.Process.Pid), "--pid", "sh", "-c", "exec 3<&0; cat <&3 >/dev/null 2>&1 &")
	shell.Stdin = read
	if output, err := shell.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	_ = read.Close()
	var child int
	eventually(t, "it has inherited a process", func() bool {
		child = p.child(t)
		return child != 0
	})
	_ = write.Close()
	eventually(t, "the process that it has inherited is reaped", func() bool { return p.child(t) == 0 })

	p.waits(t)
	p.isEndedBy(t, syscall.SIGTERM)
}

// child returns a child of the process, also one that has ended and is not reaped; 0 is none.
func (p *pausing) child(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil && status(pid, "PPid") == strconv.Itoa(p.Process.Pid) {
			return pid
		}
	}
	return 0
}

// TestPauseOfAnotherMachine runs the program of the other architecture, where qemu's emulation of one is installed (qemu-user).
func TestPauseOfAnotherMachine(t *testing.T) {
	t.Parallel()
	other, emulated := "arm64", "aarch64"
	if runtime.GOARCH == "arm64" {
		other, emulated = "amd64", "x86_64"
	}
	var qemu string
	for _, name := range []string{"qemu-" + emulated, "qemu-" + emulated + "-static"} {
		if found, err := exec.LookPath(name); err == nil {
			qemu = found
		}
	}
	if qemu == "" {
		t.Skipf("qemu-%s is not installed (Debian: qemu-user)", emulated)
	}
	command := exec.Command(qemu, "-strace", program(t, other))
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	command.Stderr = write
	p := start(t, command)
	_ = write.Close()
	// What the program calls, as qemu says it.
	var calls []string
	lines := bufio.NewScanner(read)
	for lines.Scan() {
		calls = append(calls, lines.Text())
		if strings.Contains(lines.Text(), "rt_sigprocmask") {
			break
		}
	}
	if text := strings.Join(calls, "\n"); !strings.Contains(text, "rt_sigaction(SIGCHLD") || !strings.Contains(text, "rt_sigprocmask(SIG_BLOCK") {
		t.Fatalf("it calls:\n%s", text)
	}
	p.isEndedBy(t, syscall.SIGTERM)
	for lines.Scan() {
		calls = append(calls, lines.Text())
	}
	if text := strings.Join(calls, "\n"); !strings.Contains(text, "rt_sigtimedwait") || !strings.Contains(text, "exit_group(0)") {
		t.Errorf("it calls:\n%s", text)
	}
}
