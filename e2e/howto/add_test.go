package howto_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/lab"
)

// TestAddANode follows the page "Add a node".
func TestAddANode(t *testing.T) {
	r := newReader(t, "docs/how-to/add-a-node.md")
	first := r.lab.Machine(t, "first", "192.0.2.10")
	r.firstNode(first)
	added, piped := r.lab.Machine(t, "new", "192.0.2.20"), r.lab.Machine(t, "piped", "192.0.2.21")
	r.machines["new"] = added
	r.calls("reeve-6f1c", added)

	r.events["another-ticket"] = func() {
		id := r.ticket("--note another")
		r.names["0123"] = func() string { return id[:4] }
	}
	shown := ""
	r.events["the-key-is-known"] = func() { shown = fingerprint(r.last.Stdout + r.last.Terminal) }
	r.events["the-key-was-shown"] = func() {
		// It was asked, and saw the key that the machine has shown.
		if r.last.Questions != 1 || shown == "" || !strings.Contains(r.last.Terminal, shown) {
			t.Errorf("approve does not ask, or does not show %q: %s", shown, r.last)
		}
	}
	r.events["a-plugin"] = func() { r.desk.Must(t, "cp /usr/local/lib/reeve/examples/lighthouse .") }
	r.events["it-becomes-a-node"] = func() {
		machine := r.lab.Machine(t, "automatic", "192.0.2.22")
		r.desk.Must(t, "scp ticket root@192.0.2.22:ticket && rm ticket")
		machine.Must(t, "reeve init --join ticket --role hostsfile --hosts-file /etc/hosts && systemctl enable --now reeved")
		r.home(machine)
		if shown := r.desk.Must(t, "reeve describe node "+r.id(machine)); !strings.Contains(shown.Stdout, "ticket") {
			t.Errorf("it is not said that a ticket has approved it: %s", shown)
		}
	}
	r.events["machines-that-are-refused"] = func() {
		// The ticket that came by a pipe is taken back before the machine registers.
		r.desk.Must(t, "for ticket in $(reeve ticket list -o json | tr -d ' \\n' | grep -o '\"id\":\"[0-9a-f]*\"' | cut -d'\"' -f4); do reeve ticket revoke $ticket; done")
		piped.Must(t, "systemctl enable --now reeved")
		r.refused(piped, "the ticket is none that cluster … takes")
		// Others come with a ticket that is spent, and with one that does not allow what they ask for.
		other := r.lab.Machine(t, "other", "192.0.2.23")
		r.ticket("--role hostsfile --output-file ticket")
		r.desk.Must(t, "scp ticket root@192.0.2.23:ticket && scp ticket root@192.0.2.21:ticket && rm ticket")
		other.Must(t, "reeve init --join ticket --role curator && systemctl enable --now reeved")
		r.refused(other, "does not allow what the machine asks for")
		other.Must(t, "systemctl stop reeved && rm -r /etc/reeve /var/lib/reeve/system /var/lib/reeve/data && reeve init --join ticket && systemctl start reeved")
		r.awaits(other, "Foreign", "approval")
		// As the page says: the text of a new one, and a restart.
		piped.Must(t, "cat ticket > /etc/reeve/ticket && systemctl restart reeved")
		r.refused(piped, "it is spent")
	}
	r.follow()
}

// ticket makes a ticket, and returns its ID.
func (r *reader) ticket(flags string) string {
	r.t.Helper()
	made := r.desk.Must(r.t, "reeve ticket create -o json "+flags)
	var document struct {
		Ticket struct {
			ID string `json:"id"`
		} `json:"ticket"`
	}
	if err := json.Unmarshal([]byte(made.Stdout), &document); err != nil || len(document.Ticket.ID) < 4 {
		r.t.Fatalf("%v: no ID of a ticket", err)
	}
	return document.Ticket.ID
}

// refused waits until a machine says what the page says that it says.
func (r *reader) refused(machine *lab.Machine, text string) {
	r.t.Helper()
	r.says(text, r.awaits(machine, "", strings.TrimSpace(text[:strings.IndexByte(text+"…", 0xe2)])))
}

// awaits waits until a machine is in a state, if one is named, with a reason that has a text, and returns the reason.
func (r *reader) awaits(machine *lab.Machine, state, text string) (reason string) {
	r.t.Helper()
	eventually.True(r.t, patience, machine.Name+" says: "+text, func() (bool, string) {
		result := machine.Run(r.t, "reeve status -o json")
		status, err := devcluster.ParseStatus(result.Stdout)
		reason = status.Membership.Reason
		return err == nil && strings.Contains(reason, text) && (state == "" || status.Membership.State == state), result.String()
	})
	return reason
}

// fingerprint is that of a key in the output of a command.
func fingerprint(text string) string {
	for word := range strings.FieldsSeq(text) {
		if strings.HasPrefix(word, "SHA256:") {
			return strings.TrimRight(word, ",.;")
		}
	}
	return ""
}
