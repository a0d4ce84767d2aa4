package howto_test

import (
	"os"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/lab"
)

// TestUnlockANode follows the page "Unlock a node": a node with an encrypted volume, from its recovery key on.
func TestUnlockANode(t *testing.T) {
	r := newReader(t, "docs/how-to/unlock-a-node.md")
	encrypts(t)
	node := r.lab.Machine(t, "node", "192.0.2.10")
	r.machines["node"] = node

	const stick, key = "mkdir -p /media/stick", "/media/stick/recovery.key"
	recipient := ""
	r.names["age1…"] = func() string { return recipient }
	r.events["a-stick"] = func() { r.desk.Must(t, stick) }
	r.events["the-public-halves"] = func() {
		recipient = recipientIn(r.last.Stdout + r.last.Terminal)
		if recipient == "" {
			t.Fatalf("the public half is not shown: %s", r.last)
		}
		r.desk.Must(t, "reeve owner key owner.key > owner.pub && scp owner.pub root@192.0.2.10:owner.pub")
	}
	r.events["the-machine-starts-again"] = func() {
		r.home(node)
		node.PowerOff(t)
		node.PowerOn(t)
	}
	r.events["the-stick-comes"] = func() {
		node.Must(t, stick)
		r.desk.Must(t, "scp "+key+" root@192.0.2.10:"+key)
	}
	r.events["wrong-keys"] = func() {
		r.says("is a wrong one: the recovery file", r.notOpened(node, "reeve recovery-key new other.key && reeve node unlock --recovery-key other.key --dry-run"))
		r.says("is a damaged recovery key", r.notOpened(node, "sed 's/AGE-SECRET-KEY-1/&Q/' "+key+" > damaged.key && reeve node unlock --recovery-key damaged.key --dry-run"))
	}
	r.events["at-the-desk"] = func() {
		r.home(node)
		r.desk.Must(t, "ssh root@192.0.2.10 reeve ca > ca.pem && reeve login --name lab --address 192.0.2.10:7443 --ca ca.pem --key owner.key")
		r.machines["workshop"] = r.lab.Machine(t, "workshop", "192.0.2.50")
	}
	r.follow()
}

// encrypts skips a test of encrypted volumes on a machine that has none.
func encrypts(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skipf("cannot run: there are no loop devices here: %v", err)
	}
}

// recipientIn is the public half of a recovery key in the output of a command.
func recipientIn(text string) string {
	for word := range strings.FieldsSeq(text) {
		if strings.HasPrefix(word, "age1") {
			return strings.TrimRight(word, ".,")
		}
	}
	return ""
}

// notOpened is what a command says that is refused.
func (r *reader) notOpened(machine *lab.Machine, command string) string {
	r.t.Helper()
	result := machine.Run(r.t, command)
	if result.Code == 0 {
		r.t.Errorf("it is not refused: %s", result)
	}
	return result.Terminal
}
