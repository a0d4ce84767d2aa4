package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// switchTime is how long a machine may take to start or to end.
const switchTime = time.Minute

// Machine is a machine of a lab.
type Machine struct {
	// Name is its host name, Address what others reach it by.
	Name, Address string

	lab    *Lab
	number int
	disk   string

	// What follows is nil while it is switched off.
	first    *exec.Cmd
	lifeline *os.File
}

// machineCount numbers the machines of all labs of this process, portCount their connections.
var machineCount, portCount atomic.Int64

// Machine makes a machine with an empty disk, and switches it on.
func (l *Lab) Machine(t testing.TB, name, address string) *Machine {
	t.Helper()
	m := &Machine{Name: name, Address: address, lab: l, number: int(machineCount.Add(1))}
	m.disk = filepath.Join(l.directory, "disk"+strconv.Itoa(m.number))
	m.newDisk(t)
	l.mu.Lock()
	l.machines = append(l.machines, m)
	l.mu.Unlock()
	m.PowerOn(t)
	return m
}

// Clone makes another machine with a copy of this machine's disk. Both are switched off.
func (m *Machine) Clone(t testing.TB, name, address string) *Machine {
	t.Helper()
	clone := &Machine{Name: name, Address: address, lab: m.lab, number: int(machineCount.Add(1))}
	clone.disk = filepath.Join(m.lab.directory, "disk"+strconv.Itoa(clone.number))
	copyTree(t, m.disk, clone.disk)
	m.lab.mu.Lock()
	m.lab.machines = append(m.lab.machines, clone)
	m.lab.mu.Unlock()
	return clone
}

// Keep keeps a copy of the disk, for Restore. The machine has to be switched off.
func (m *Machine) Keep(t testing.TB) {
	t.Helper()
	copyTree(t, m.disk, m.disk+".kept")
}

// Restore puts the copy that Keep has kept in the place of the disk. The machine has to be switched off.
func (m *Machine) Restore(t testing.TB) {
	t.Helper()
	if err := os.RemoveAll(m.disk); err != nil {
		t.Fatal(err)
	}
	copyTree(t, m.disk+".kept", m.disk)
}

func copyTree(t testing.TB, from, to string) {
	t.Helper()
	if output, err := exec.CommandContext(t.Context(), "cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("copy %s: %v: %s", from, err, output)
	}
}

// firstRange is the first range of user IDs of machines. The nodes of a machine take the lowest that is free in a file of the machine; but the processes of all machines
// have one kernel, and tests of nodes of the host know processes by their user IDs: no two may have the same.
const firstRange = 1 << 17

// newDisk fills a disk with as little as programs need.
func (m *Machine) newDisk(t testing.TB) {
	t.Helper()
	for _, directory := range []string{"etc", "var/log", "var/lib/reeve", "var/tmp", "root"} {
		if err := os.MkdirAll(filepath.Join(m.disk, directory), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const first, size = 1879048192, 1024
	before := firstRange + (os.Getpid()%4096)*16 + m.number%16
	files := map[string]string{
		"etc/hostname":             m.Name + "\n",
		"etc/hosts":                "127.0.0.1 localhost\n",
		"etc/machine-id":           fmt.Sprintf("%032x\n", m.number),
		"etc/resolv.conf":          "",
		"var/lib/reeve/uid-ranges": fmt.Sprintf(`{"version":1,"ranges":[{"start":%d,"count":%d,"owner":"/"}]}`, first, before*size),
	}
	for _, name := range []string{"passwd", "group", "nsswitch.conf", "ld.so.cache", "services"} {
		content, err := os.ReadFile(filepath.Join("/etc", name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		files[filepath.Join("etc", name)] = string(content)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(m.disk, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chmod(filepath.Join(m.disk, "root"), 0o700), os.Chmod(filepath.Join(m.disk, "var/lib/reeve"), 0o711)); err != nil {
		t.Fatal(err)
	}
}

// PowerOn switches the machine on, and starts what starts with it.
func (m *Machine) PowerOn(t testing.TB) {
	t.Helper()
	if m.first != nil {
		return
	}
	root := m.disk + ".root"
	if err := os.MkdirAll(root, 0o755); err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(spec{Program: program, Name: m.Name, Address: m.Address, Root: root, Disk: m.disk, Local: m.lab.local(), Shared: m.lab.shared()})
	if err != nil {
		t.Fatal(err)
	}
	life, lifeline, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = life.Close() }()
	started, told, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = started.Close() }()
	log, err := os.Create(m.disk + ".log")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	first := exec.Command(program)
	first.Env = []string{specVariable + "=" + string(text), "PATH=" + os.Getenv("PATH")}
	first.ExtraFiles = []*os.File{life, told}
	first.Stdout, first.Stderr = log, log
	first.SysProcAttr = &syscall.SysProcAttr{
		Setsid: true, Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
	}
	err = first.Start()
	_ = told.Close()
	if err != nil {
		_ = lifeline.Close()
		t.Fatalf("the machine %s cannot be switched on: %v", m.Name, err)
	}
	m.first, m.lifeline = first, lifeline
	m.enterGroups(t)
	_ = started.SetReadDeadline(time.Now().Add(switchTime))
	if said, err := io.ReadAll(started); err != nil || len(said) == 0 {
		text, _ := os.ReadFile(log.Name())
		t.Fatalf("the machine %s does not start: %v: %s", m.Name, err, text)
	}
	m.connect(t)
	if _, err := call(m.socket(), request{Boot: true}, nil, nil); err != nil {
		t.Fatalf("the machine %s: %v", m.Name, err)
	}
}

// connect connects the machine to the network of the lab.
func (m *Machine) connect(t testing.TB) {
	t.Helper()
	if m.lab.hub == nil {
		m.Must(t, "ip link set lo up && ip link add lan type bridge && ip link set lan up && ip address add "+m.Address+"/24 dev lan && ip route add default dev lan")
		return
	}
	// The port of an earlier time is gone a moment after the machine.
	port := "port" + strconv.FormatInt(portCount.Add(1), 10)
	ip(t, "link", "add", "eth0", "netns", strconv.Itoa(m.first.Process.Pid), "type", "veth", "peer", "name", port, "netns", strconv.Itoa(m.lab.hub.first.Process.Pid))
	m.lab.hub.Must(t, "ip link set "+port+" master lan up")
	m.Must(t, "ip link set lo up && ip address add "+m.Address+"/24 dev eth0 && ip link set eth0 up && ip route add default via "+m.lab.hub.Address)
}

// PowerOff takes the power away: all processes end at once, and what is in memory is lost.
func (m *Machine) PowerOff(t testing.TB) {
	if m.first == nil {
		return
	}
	_ = m.lifeline.Close()
	ended := time.AfterFunc(switchTime, func() { _ = m.first.Process.Kill() })
	// It was killed, or ended by itself.
	_ = m.first.Wait()
	if !ended.Stop() {
		t.Errorf("the machine %s did not end", m.Name)
	}
	m.removeGroups(t)
	m.first, m.lifeline = nil, nil
}

func (m *Machine) socket() string { return filepath.Join(m.lab.shared(), m.Address) }

// File returns where a file of the machine's disk is on the host: one below /etc, /var or /root.
func (m *Machine) File(path string) string { return filepath.Join(m.disk, path) }

// showLogs shows what the machine's services wrote.
func (m *Machine) showLogs(t testing.TB) {
	files, _ := filepath.Glob(m.File("/var/log/*.journal"))
	for _, file := range append(files, m.disk+".log") {
		content, err := os.ReadFile(file)
		if err != nil || len(content) == 0 {
			continue
		}
		const most = 6 << 10
		var text string
		for line := range strings.Lines(string(content)) {
			// Of the store's own log only what is no routine.
			if !strings.Contains(line, "module=consensus.etcd") || !strings.Contains(line, "[INFO]") {
				text += line
			}
		}
		if len(text) > most {
			text = "…" + strings.ToValidUTF8(text[len(text)-most:], "")
		}
		t.Logf("--- %s: %s\n%s", m.Name, filepath.Base(file), text)
	}
}
