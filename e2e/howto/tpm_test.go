package howto_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/lab"
	"github.com/reeveproject/reeve/e2e/internal/softtpm"
)

// startTPM is what the page says of a TPM without one.
const startTPM = "swtpm socket --daemon --tpm2 --tpmstate dir=/var/tmp/tpm --server type=unixio,path=/var/tmp/tpm/socket --flags not-need-init,startup-clear"

// sealed is what the parameters say of how secrets are sealed.
var sealed = regexp.MustCompile(`(?m)^seal:\n( .*\n)+`)

// TestUseATPM follows the page "Use a TPM" with a machine whose TPM is in software.
func TestUseATPM(t *testing.T) {
	r := newReader(t, "docs/how-to/use-a-tpm.md")
	encrypts(t)
	if _, err := exec.LookPath("swtpm"); err != nil {
		t.Skip("cannot run: swtpm is not installed (apt-get install swtpm)")
	}
	node := r.lab.Machine(t, "node", "192.0.2.10")
	r.machines["node"] = node
	r.machines["workshop"] = r.lab.Machine(t, "workshop", "192.0.2.50")
	const socket, key = "/var/tmp/tpm/socket", "/media/stick/recovery.key"

	// What the register has after one measurement of 32 bytes of zero: it begins with zero itself.
	planned := sha256.Sum256(make([]byte, 64))
	r.names["HEX"] = func() string { return hex.EncodeToString(planned[:]) }
	// The machine boots with something in its register, or with nothing.
	boot := func(measured bool) {
		node.PowerOff(t)
		node.PowerOn(t)
		node.Must(t, "rm -f "+socket+" && "+startTPM)
		if measured {
			softtpm.Extend(t, node.File(socket), 7)
		}
		node.Must(t, "systemctl start reeved")
	}
	r.events["a-node-with-a-tpm"] = func() {
		node.Must(t, "mkdir -p /var/tmp/tpm && "+startTPM)
		made := node.Must(t, "mkdir -p /root/stick && reeve recovery-key new /root/stick/recovery.key")
		node.Must(t, "reeve init --owner-key owner.key --volume fscrypt --recovery-recipient "+recipientIn(made.Stdout+made.Terminal))
		// By the parameters of the page, with the device that is there.
		parameters := node.File("/etc/reeve/node.yaml")
		content, err := os.ReadFile(parameters)
		if err != nil {
			t.Fatal(err)
		}
		text := sealed.ReplaceAllString(string(content), "") + "seal:\n  tpm2:\n    device: " + socket + "\n"
		if err := os.WriteFile(parameters, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		// It is not started with the machine: its TPM is not there then.
		node.Must(t, "systemctl start reeved")
		r.home(node)
	}
	r.events["the-planned-change-and-another"] = func() {
		boot(true)
		r.home(node)
		boot(false)
		node.Must(t, "mkdir -p /media && ln -s /root/stick /media/stick")
		r.problem(node, "PCR 7 (Secure Boot) was")
	}
	r.events["it-opens-by-itself"] = func() {
		boot(false)
		r.home(node)
	}
	r.follow()
	if _, err := os.Stat(r.machines["workshop"].File(socket)); err != nil {
		t.Errorf("the software TPM of the page does not listen: %v (%s)", err, key)
	}
}

// problem waits until the status of a machine's node names a problem.
func (r *reader) problem(machine *lab.Machine, text string) {
	r.t.Helper()
	eventually.True(r.t, patience, machine.Name+" says: "+text, func() (bool, string) {
		result := machine.Run(r.t, "reeve status")
		return strings.Contains(strings.Join(strings.Fields(result.Stdout+result.Terminal), " "), text), result.String()
	})
}
