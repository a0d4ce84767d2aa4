// Package tpmtest gives tests a TPM: an swtpm of their own, and a line to it that misbehaves as the test says.
//
// It is for tests only. A test on a machine without swtpm is skipped.
package tpmtest

import (
	"bytes"
	"crypto/sha256"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
)

// patience is how long an swtpm may take to start, to answer and to stop. It is met only when something is wrong.
const patience = 30 * time.Second

// TPM is a running swtpm. It ends with the test.
type TPM struct {
	t         testing.TB
	directory string
	socket    string
	// state is the directory of what the TPM keeps: its seeds, and so all that makes it this TPM.
	state   string
	process *exec.Cmd
	// lifeline ends the process when it is closed, and so also when the test dies.
	lifeline io.Closer
}

// Start starts a new TPM. The test is skipped if swtpm is not installed.
func Start(t testing.TB) *TPM {
	t.Helper()
	if _, err := exec.LookPath("swtpm"); err != nil {
		t.Skip("cannot run: swtpm is not installed (apt-get install swtpm)")
	}
	// The path of a socket ends at 107 bytes, and the directory of a test can have a long name.
	directory, err := os.MkdirTemp("", "tpm")
	if err != nil {
		t.Fatal(err)
	}
	p := &TPM{t: t, directory: directory, socket: filepath.Join(directory, "s")}
	t.Cleanup(func() {
		p.Stop()
		if err := os.RemoveAll(directory); err != nil {
			t.Error(err)
		}
	})
	p.Replace()
	return p
}

// Socket is the path of the Unix socket on which it takes commands. It stays the same for all of the test.
func (p *TPM) Socket() string { return p.socket }

// Stop switches the TPM off. It keeps what a TPM keeps without power.
func (p *TPM) Stop() {
	p.t.Helper()
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
	_ = os.Remove(p.socket)
}

// Restart switches the TPM off and on, which sets its registers back. A TPM that is off is switched on.
func (p *TPM) Restart() {
	p.t.Helper()
	p.Stop()
	p.start()
}

// Replace puts a new TPM into the place of this one, at the same socket.
func (p *TPM) Replace() {
	p.t.Helper()
	p.Stop()
	state, err := os.MkdirTemp(p.directory, "state")
	if err != nil {
		p.t.Fatal(err)
	}
	p.state = state
	p.start()
}

func (p *TPM) start() {
	p.t.Helper()
	// The shell ends swtpm, by its id, when nobody holds the other end of its standard input any more.
	process := exec.Command("sh", "-c", `"$@" </dev/null & read -r _; kill "$!"; wait "$!"`, "sh",
		"swtpm", "socket", "--tpm2", "--tpmstate", "dir="+p.state, "--server", "type=unixio,path="+p.socket, "--flags", "not-need-init,startup-clear")
	lifeline, err := process.StdinPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	process.Stderr = os.Stderr
	if err := process.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.process, p.lifeline = process, lifeline
	conn := p.dial()
	_ = conn.Close()
}

// dial connects to the TPM as soon as it listens.
func (p *TPM) dial() net.Conn {
	p.t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); ; <-tick.C {
		conn, err := net.Dial("unix", p.socket)
		if err == nil {
			if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
				p.t.Fatal(err)
			}
			return conn
		}
		if time.Now().After(end) {
			p.t.Fatalf("swtpm does not listen: %v", err)
		}
	}
}

// Do does something with the TPM itself, in a connection that nobody else has meanwhile.
func (p *TPM) Do(do func(tpm transport.TPM) error) {
	p.t.Helper()
	conn := p.dial()
	defer conn.Close()
	if err := do(transport.FromReadWriter(conn)); err != nil {
		p.t.Fatal(err)
	}
}

// Extend measures something into a register, which so gets another value.
func (p *TPM) Extend(pcr uint32) {
	p.t.Helper()
	p.Do(func(tpm transport.TPM) error { return Extend(tpm, pcr) })
}

// Extend measures something into a register of a TPM that is open.
func Extend(tpm transport.TPM, pcr uint32) error {
	digest := sha256.Sum256([]byte("something else"))
	_, err := tpm2.PCRExtend{
		PCRHandle: tpm2.AuthHandle{Handle: tpm2.TPMHandle(pcr), Auth: tpm2.PasswordAuth(nil)},
		Digests:   tpm2.TPMLDigestValues{Digests: []tpm2.TPMTHA{{HashAlg: tpm2.TPMAlgSHA256, Digest: digest[:]}}},
	}.Execute(tpm)
	return err
}

// Extended is the value that a register has after Extend, if it has the value given now.
func Extended(value []byte) []byte {
	digest := sha256.Sum256([]byte("something else"))
	after := sha256.Sum256(append(bytes.Clone(value), digest[:]...))
	return after[:]
}

// Value is the value of a register.
func (p *TPM) Value(pcr uint32) []byte {
	p.t.Helper()
	var value []byte
	p.Do(func(tpm transport.TPM) error {
		answer, err := tpm2.PCRRead{PCRSelectionIn: tpm2.TPMLPCRSelection{PCRSelections: []tpm2.TPMSPCRSelection{{
			Hash: tpm2.TPMAlgSHA256, PCRSelect: tpm2.PCClientCompatible.PCRs(uint(pcr)),
		}}}}.Execute(tpm)
		if err != nil {
			return err
		}
		value = answer.PCRValues.Digests[0].Buffer
		return nil
	})
	return value
}

// Clear clears the TPM as its owner can: what it sealed is lost.
func (p *TPM) Clear() {
	p.t.Helper()
	p.Do(func(tpm transport.TPM) error {
		_, err := tpm2.Clear{AuthHandle: tpm2.AuthHandle{Handle: tpm2.TPMRHLockout, Auth: tpm2.PasswordAuth(nil)}}.Execute(tpm)
		return err
	})
}

// Loaded is how many objects and sessions are loaded.
func (p *TPM) Loaded() int {
	p.t.Helper()
	loaded := 0
	p.Do(func(tpm transport.TPM) error {
		for _, kind := range []tpm2.TPMHT{tpm2.TPMHTTransient, tpm2.TPMHTHMACSession} {
			answer, err := tpm2.GetCapability{Capability: tpm2.TPMCapHandles, Property: uint32(kind) << 24, PropertyCount: 64}.Execute(tpm)
			if err != nil {
				return err
			}
			handles, err := answer.CapabilityData.Data.Handles()
			if err != nil {
				return err
			}
			loaded += len(handles.Handle)
		}
		return nil
	})
	return loaded
}
