package params_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/core/inorder"
	"github.com/reeveproject/reeve/core/params"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/proto/ticket"
)

func ticketText(t testing.TB) string {
	t.Helper()
	text, err := ticket.Encode(&clusterv1.TicketText{
		TicketId: "0123456789abcdef", Secret: bytes.Repeat([]byte("secret.!"), 4), ClusterId: strings.Repeat("ab", 16), CaPins: [][]byte{make([]byte, 32)},
		Curators: []string{"192.0.2.1:7400"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// registering has the section register in the place of bootstrap.
func registering(section string) string {
	return good[:strings.Index(good, "bootstrap:")] + "register:\n" + section
}

func TestRegister(t *testing.T) {
	text := ticketText(t)
	parameters := parsed(t, registering("  ticket: "+text+"\n  labels: {rack: a7}\n  roles: [{role: curator, configuration: '{}'}]\n"))
	got, err := params.Ticket(parameters.GetRegister())
	if err != nil || got.GetTicketId() != "0123456789abcdef" {
		t.Errorf("ticket %v, %v", got, err)
	}
	path := filepath.Join(t.TempDir(), "ticket")
	inFile := parsed(t, registering("  ticket_file: "+path+"\n"))
	if _, err := params.Ticket(inFile.GetRegister()); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "reeve ticket create") {
		t.Errorf("without a file: %v", err)
	}
	if err := os.WriteFile(path, []byte("\n"+text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := params.Ticket(inFile.GetRegister()); err != nil || got.GetClusterId() != strings.Repeat("ab", 16) {
		t.Errorf("ticket %v, %v", got, err)
	}
	if err := os.WriteFile(path, []byte(text[:len(text)-20]), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := params.Ticket(inFile.GetRegister()); err == nil || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), text[10:40]) {
		t.Errorf("cut off: %v", err)
	}
}

// What is wrong is said with its place, and a ticket is never shown, wherever it stands and whatever is wrong with it.
func TestRegisterProblems(t *testing.T) {
	text := ticketText(t)
	encrypted := strings.Replace(registering("  ticket: "+text+"\n"), "{plain: {}}", "{fscrypt: {}}", 1)
	for name, test := range inorder.Of(map[string]struct{ document, want string }{
		"cut off":               {registering("  ticket: " + text[:len(text)-30] + "\n"), "register.ticket:"},
		"without its beginning": {registering("  ticket: " + text[7:] + "\n"), "register.ticket:"},
		"in two lines":          {registering("  ticket: >\n    " + text[:60] + "\n    " + text[60:] + "\n"), "register.ticket:"},
		"quoted":                {registering("  \"ticket\": \"" + text + "!\"\n"), "register.ticket:"},
		"under another name":    {registering("  tickets: " + text + "\n"), "tickets"},
		"in the list of roles":  {registering("  ticket: " + text + "\n  roles: [" + text + "]\n"), "register.roles"},
		"as a file":             {registering("  ticket_file: " + text + "\n"), "register.ticket_file:"},
		"no YAML":               {registering("  ticket: [" + text + "\n"), "yaml"},
		"none":                  {registering("  roles: []\n"), "register.from:"},
		"a file on the volume":  {registering("  ticket_file: /d/data/ticket\n"), "register.ticket_file: lies within directories.data"},
		"a configuration":       {registering("  ticket: " + text + "\n  roles: [{role: a, configuration: '{'}]\n"), "register.roles[0].configuration: is not a JSON document"},
		"the same role twice":   {registering("  ticket: " + text + "\n  roles: [{role: a}, {role: a}]\n"), "register.roles:"},
		"no recovery key":       {encrypted, "register.recovery_recipient: is needed"},
		"beside bootstrap":      {good + "register:\n  ticket: " + text + "\n", "already set for oneof cluster"},
		"JSON in one line":      {`{"version":"reeve.node.v1","register":{"ticket":"` + text + `?"}}`, "register.ticket:"},
		"binary, without the rest": {string(binary(t, &nodev1.Parameters{
			Version: "reeve.node.v1", Directories: &nodev1.Directories{System: "/s", Data: "/d", Run: "/r\x01"},
			Cluster: &nodev1.Parameters_Register{Register: &nodev1.Register{From: &nodev1.Register_Ticket{Ticket: text[:50]}}},
		})), "register.ticket:"},
	}) {
		t.Run(name, func(t *testing.T) {
			_, err := params.Parse("p.yaml", []byte(test.document))
			if err == nil {
				t.Fatal("accepted")
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error does not speak of %q:\n%v", test.want, err)
			}
			noPart(t, text, err)
		})
	}
}

// noPart verifies that an error shows no part of a ticket that anything of its secret could be known by.
func noPart(t *testing.T, text string, err error) {
	t.Helper()
	for i := len("reeve1."); i+12 <= len(text); i++ {
		if strings.Contains(err.Error(), text[i:i+12]) {
			t.Fatalf("the error shows %q of the ticket:\n%v", text[i:i+12], err)
		}
	}
}

// It is the ticket that makes a node, wherever it lies: a machine is made anew with another one, and not with the same.
func TestTicketIsConsumed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "consumed.json")
	parameters := parsed(t, registering("  ticket_file: /t\n"))
	consumed := openConsumed(t, path)
	if err := consumed.Mark(parameters, "0123456789abcdef", "n1", "c1"); err != nil {
		t.Fatal(err)
	}
	var used *params.ConsumedError
	if err := openConsumed(t, path).Check(parsed(t, registering("  ticket_file: /elsewhere\n")), "0123456789abcdef"); !errors.As(err, &used) || used.NodeID != "n1" {
		t.Errorf("the same ticket: %v", err)
	}
	if err := consumed.Check(parameters, "ffffffffffffffff"); err != nil {
		t.Errorf("another ticket: %v", err)
	}
}
