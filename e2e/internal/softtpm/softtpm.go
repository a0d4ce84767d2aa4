// Package softtpm is a TPM 2.0 in software, swtpm, as a machine has one: it can be switched off and on, measured into and put in another's place.
package softtpm

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/eventually"
)

// patience is how long swtpm may take to start, to answer and to stop. It is met only when something is wrong.
const patience = time.Minute

// TPM is a running swtpm. It ends with the test.
type TPM struct {
	directory, state string
	process          *exec.Cmd
	lifeline         io.Closer
}

// Start starts a new TPM. base is a directory with a short path. The test is skipped where there is no swtpm.
func Start(t testing.TB, base string) *TPM {
	t.Helper()
	if _, err := exec.LookPath("swtpm"); err != nil {
		t.Skip("cannot run: swtpm is not installed (apt-get install swtpm)")
	}
	directory, err := os.MkdirTemp(base, "tpm")
	if err != nil {
		t.Fatal(err)
	}
	p := &TPM{directory: directory}
	t.Cleanup(func() {
		p.Stop(t)
		if err := os.RemoveAll(directory); err != nil {
			t.Error(err)
		}
	})
	p.Replace(t)
	return p
}

// Socket is the path of the Unix socket on which it takes commands, the same for all of the test.
func (p *TPM) Socket() string { return filepath.Join(p.directory, "s") }

// Stop switches the TPM off. It keeps what a TPM keeps without power.
func (p *TPM) Stop(t testing.TB) {
	t.Helper()
	if p.process == nil {
		return
	}
	process := p.process
	p.process = nil
	_ = p.lifeline.Close()
	kill := time.AfterFunc(patience, func() { _ = process.Process.Kill() })
	defer kill.Stop()
	// It ends by a signal, which is an error to Wait and none to the test.
	_ = process.Wait()
	_ = os.Remove(p.Socket())
}

// Restart switches the TPM off and on, which sets its registers back. One that is off is switched on.
func (p *TPM) Restart(t testing.TB) {
	t.Helper()
	p.Stop(t)
	// The shell ends swtpm, by its id, when nobody holds the other end of its standard input any more: the test may be killed.
	process := exec.Command("sh", "-c", `"$@" </dev/null & read -r _; kill "$!"; wait "$!"`, "sh",
		"swtpm", "socket", "--tpm2", "--tpmstate", "dir="+p.state, "--server", "type=unixio,path="+p.Socket(), "--flags", "not-need-init,startup-clear")
	lifeline, err := process.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	process.Stderr = os.Stderr
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	p.process, p.lifeline = process, lifeline
	_ = dial(t, p.Socket()).Close()
}

// Replace puts a new TPM into the place of this one, at the same socket.
func (p *TPM) Replace(t testing.TB) {
	t.Helper()
	p.Stop(t)
	var err error
	if p.state, err = os.MkdirTemp(p.directory, "state"); err != nil {
		t.Fatal(err)
	}
	p.Restart(t)
}

// Extend measures something into a register of the SHA-256 bank, as a machine does that boots something else.
func (p *TPM) Extend(t testing.TB, pcr uint32) {
	t.Helper()
	Extend(t, p.Socket(), pcr)
}

// Extend is that of the TPM behind a socket: 32 bytes of zero are measured.
func Extend(t testing.TB, socket string, pcr uint32) {
	t.Helper()
	const (
		sessions  = 0x8002     // TPM_ST_SESSIONS
		extend    = 0x00000182 // TPM_CC_PCR_Extend
		password  = 0x40000009 // TPM_RS_PW
		algorithm = 0x000b     // TPM_ALG_SHA256
	)
	order := binary.BigEndian
	// The empty password; then one digest.
	authorization := append(order.AppendUint32(nil, password), 0, 0, 0, 0, 0)
	body := order.AppendUint32(nil, pcr)
	body = append(order.AppendUint32(body, uint32(len(authorization))), authorization...)
	body = order.AppendUint16(order.AppendUint32(body, 1), algorithm)
	body = append(body, make([]byte, 32)...)
	command := order.AppendUint32(order.AppendUint16(nil, sessions), uint32(10+len(body)))
	command = append(order.AppendUint32(command, extend), body...)
	conn := dial(t, socket)
	defer conn.Close()
	answer := make([]byte, 4096)
	_, err := conn.Write(command)
	var n int
	if err == nil {
		n, err = conn.Read(answer)
	}
	if err != nil || n < 10 || order.Uint32(answer[6:]) != 0 {
		t.Fatalf("extend register %d: %v, answer %x", pcr, err, answer[:n])
	}
}

// dial connects to the TPM as soon as it listens.
func dial(t testing.TB, socket string) net.Conn {
	t.Helper()
	var conn net.Conn
	eventually.True(t, patience, "swtpm listens", func() (bool, string) {
		var err error
		if conn, err = net.Dial("unix", socket); err == nil {
			err = conn.SetDeadline(time.Now().Add(patience))
		}
		return err == nil, fmt.Sprint(err)
	})
	return conn
}
