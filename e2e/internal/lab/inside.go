package lab

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/e2e/internal/unit"
)

const (
	// specVariable has the test's executable be the first process of a machine: it holds the spec.
	specVariable = "REEVE_LAB_MACHINE"
	// unitVariable has it put the command of a unit in its place: it names the unit's file.
	unitVariable = "REEVE_LAB_UNIT"
)

// Where a machine has what is not of a machine: the sockets of the first processes of all machines of the lab, by their addresses, and below bin the tools.
const (
	labDirectory = "/lab"
	toolPath     = labDirectory + "/bin/tool"
	// ownSocket is the socket of the machine's own first process.
	ownSocket = "/run/machine.sock"
)

// spec is what a machine is.
type spec struct {
	Name, Address string
	// Program is the test's executable.
	Program string
	// Root is an empty directory, which becomes the root; Disk has etc, var and root; Local is /usr/local; Shared is what all machines share.
	Root, Disk, Local, Shared string
}

// Main has the test's executable be what a machine needs of it, and then does not return. To be called first by TestMain.
func Main() {
	if tool, ok := tools[filepath.Base(os.Args[0])]; ok {
		os.Exit(tool(os.Args[1:]))
	}
	if file := os.Getenv(unitVariable); file != "" {
		fmt.Fprintln(os.Stderr, unit.Exec(file, os.Args[1:], []string{"PATH=" + searchPath, "LANG=C.UTF-8"}))
		os.Exit(125)
	}
	if text := os.Getenv(specVariable); text != "" {
		fmt.Fprintln(os.Stderr, "the machine does not start:", beMachine(text))
		os.Exit(125)
	}
}

// The descriptors that the first process of a machine is given beside the standard ones.
const (
	lifelineDescriptor = 3
	startedDescriptor  = 4
)

// beMachine is the first process of a machine. It returns only if the machine cannot start.
func beMachine(text string) error {
	var s spec
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	if err := os.Unsetenv(specVariable); err != nil {
		return err
	}
	unix.CloseOnExec(lifelineDescriptor)
	unix.CloseOnExec(startedDescriptor)
	if err := s.mount(); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(s.Name)); err != nil {
		return err
	}
	// Addresses by which nobody reaches a machine of the lab, and that come late.
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/all/disable_ipv6", []byte("1"), 0o600); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	socket := filepath.Join(labDirectory, s.Address)
	// One is left of a machine that was switched off.
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		return err
	}
	if err := os.Symlink(socket, ownSocket); err != nil {
		return err
	}
	m := &first{children: newChildren(), units: make(map[string]*service)}
	go m.children.reap()
	if err := tell(os.NewFile(startedDescriptor, "started")); err != nil {
		return err
	}
	go m.serve(listener)
	// Until the test closes it, or is no more.
	_, _ = io.Copy(io.Discard, os.NewFile(lifelineDescriptor, "lifeline"))
	os.Exit(0)
	return nil
}

// tell tells the test that the machine runs.
func tell(file *os.File) error {
	_, err := file.WriteString("started")
	return errors.Join(err, file.Close())
}

// mount makes the machine's root file system, and goes into it.
func (s spec) mount() error {
	inside := func(elements ...string) string { return filepath.Join(append([]string{s.Root}, elements...)...) }
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mount namespace: %w", err)
	}
	if err := unix.Mount("machine", s.Root, "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mount a tmpfs: %w", err)
	}
	for _, name := range []string{"usr", "etc", "var", "root", "home", "tmp", "run", "proc", "sys", "dev", "lab", "old"} {
		if err := os.Mkdir(inside(name), 0o755); err != nil {
			return err
		}
	}
	for _, name := range []string{"bin", "sbin", "lib", "lib32", "lib64"} {
		target, err := os.Readlink("/" + name)
		switch {
		case err == nil:
			err = os.Symlink(target, inside(name))
		case errors.Is(err, os.ErrNotExist):
			err = nil
		default: // a directory
			if err = os.Mkdir(inside(name), 0o755); err == nil {
				err = unix.Mount("/"+name, inside(name), "", unix.MS_BIND|unix.MS_REC, "")
			}
		}
		if err != nil {
			return fmt.Errorf("/%s: %w", name, err)
		}
	}
	for _, bound := range []struct{ from, to string }{
		{"/usr", "usr"}, {s.Local, "usr/local"}, {"/sys", "sys"}, {"/dev", "dev"}, {s.Shared, "lab"},
		{filepath.Join(s.Disk, "etc"), "etc"}, {filepath.Join(s.Disk, "var"), "var"}, {filepath.Join(s.Disk, "root"), "root"},
	} {
		if err := unix.Mount(bound.from, inside(bound.to), "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("bind %s: %w", bound.from, err)
		}
	}
	if err := unix.Mount(s.Program, inside(toolPath), "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s: %w", toolPath, err)
	}
	for _, made := range []struct{ kind, at, options string }{{"tmpfs", "run", "mode=0755"}, {"tmpfs", "tmp", "mode=1777"}, {"proc", "proc", ""}} {
		if err := unix.Mount(made.kind, inside(made.at), made.kind, unix.MS_NOSUID|unix.MS_NODEV, made.options); err != nil {
			return fmt.Errorf("mount /%s: %w", made.at, err)
		}
	}
	// By it programs know that systemctl is to be used.
	if err := os.MkdirAll(inside("run/systemd/system"), 0o755); err != nil {
		return err
	}
	if err := bindBootID(inside("run/boot_id"), inside("proc/sys/kernel/random/boot_id")); err != nil {
		return fmt.Errorf("boot ID: %w", err)
	}
	if err := unix.PivotRoot(s.Root, inside("old")); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if err := unix.Unmount("/old", unix.MNT_DETACH); err != nil {
		return err
	}
	return os.Remove("/old")
}

// bindBootID gives the machine a boot ID of its own, another one each time that it is switched on.
func bindBootID(file, over string) error {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	text := fmt.Sprintf("%x-%x-%x-%x-%x\n", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
	if err := os.WriteFile(file, []byte(text), 0o444); err != nil {
		return err
	}
	return unix.Mount(file, over, "", unix.MS_BIND, "")
}

// first is the first process of a machine.
type first struct {
	children *children

	mu    sync.Mutex
	units map[string]*service
}

// serve answers until the machine ends.
func (m *first) serve(listener *net.UnixListener) {
	for {
		connection, err := listener.AcceptUnix()
		if err != nil {
			fmt.Fprintln(os.Stderr, "the machine answers nobody any more:", err)
			return
		}
		go func() {
			defer func() { _ = connection.Close() }()
			asked, files, err := receive(connection)
			defer func() {
				for _, file := range files {
					_ = file.Close()
				}
			}()
			var got answer
			switch {
			case err != nil:
			case asked.Boot:
				err = m.boot()
			case len(asked.Unit) > 0:
				err = m.systemctl(asked.Unit)
			case len(files) == 3:
				got.Code, err = m.run(connection, asked, files)
			default:
				err = errors.New("a command without its standard input, output and error")
			}
			if err != nil {
				got.Error = err.Error()
			}
			// Who has gone away reads no answer.
			if encoded, err := json.Marshal(got); err == nil {
				_, _ = connection.Write(encoded)
			}
		}()
	}
}

// searchPath is that of every command on a machine.
const searchPath = labDirectory + "/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// run runs a command as somebody does who is logged in as root, and ends it when the caller is gone.
func (m *first) run(connection *net.UnixConn, asked request, files []*os.File) (int, error) {
	command := exec.Command("/bin/bash", "-c", asked.Command)
	command.Dir = "/root"
	command.Env = []string{"PATH=" + searchPath, "HOME=/root", "LANG=C.UTF-8", "TERM=dumb"}
	command.Stdin, command.Stdout, command.Stderr = files[0], files[1], files[2]
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: asked.Terminal}
	if err := m.children.start(command); err != nil {
		return 0, err
	}
	go func() {
		// Nothing comes but the end.
		_, err := connection.Read(make([]byte, 1))
		if err != nil && !errors.Is(err, net.ErrClosed) {
			_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
		}
	}()
	state := m.children.wait(command)
	return state.ExitCode(), nil
}
