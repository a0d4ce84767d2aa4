package ticket_test

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/proto/ticket"
)

func sample() *clusterv1.TicketText {
	return &clusterv1.TicketText{
		TicketId: "0123456789abcdef", Secret: bytes.Repeat([]byte{0xa5}, ticket.SecretSize), ClusterId: strings.Repeat("0a", 16),
		CaPins: [][]byte{bytes.Repeat([]byte{1}, ticket.PinSize)}, Curators: []string{"192.0.2.1:8400", "[2001:db8::1]:8400"},
	}
}

func TestThereAndBack(t *testing.T) {
	text, err := ticket.Encode(sample())
	if err != nil {
		t.Fatal(err)
	}
	for _, given := range []string{text, " " + text + "\n"} {
		got, err := ticket.Parse(given)
		if err != nil || !proto.Equal(got, sample()) {
			t.Errorf("Parse: %v, %v", got, err)
		}
	}
	if got, err := ticket.Read(strings.NewReader(text + "\n")); err != nil || !proto.Equal(got, sample()) {
		t.Errorf("Read: %v, %v", got, err)
	}
}

func TestRefused(t *testing.T) {
	for what, change := range map[string]func(*clusterv1.TicketText){
		"no cluster":        func(text *clusterv1.TicketText) { text.ClusterId = "" },
		"upper case":        func(text *clusterv1.TicketText) { text.ClusterId = strings.Repeat("0A", 16) },
		"no ticket":         func(text *clusterv1.TicketText) { text.TicketId = "0123" },
		"a short secret":    func(text *clusterv1.TicketText) { text.Secret = text.Secret[1:] },
		"no pin":            func(text *clusterv1.TicketText) { text.CaPins = nil },
		"a short pin":       func(text *clusterv1.TicketText) { text.CaPins[0] = text.CaPins[0][1:] },
		"no curator":        func(text *clusterv1.TicketText) { text.Curators = nil },
		"no port":           func(text *clusterv1.TicketText) { text.Curators[0] = "192.0.2.1" },
		"the port 0":        func(text *clusterv1.TicketText) { text.Curators[0] = "192.0.2.1:0" },
		"too many curators": func(text *clusterv1.TicketText) { text.Curators = make([]string, 65) },
	} {
		changed := sample()
		change(changed)
		if _, err := ticket.Encode(changed); err == nil {
			t.Errorf("%s is written", what)
		}
	}
	text, err := ticket.Encode(sample())
	if err != nil {
		t.Fatal(err)
	}
	for what, given := range map[string]string{
		"nothing": " ", "another version": "reeve2." + text[len(ticket.Prefix):], "cut off": text[:len(text)-7], "no base64": ticket.Prefix + "%%", "long": text + strings.Repeat("A", ticket.Max),
	} {
		if _, err := ticket.Parse(given); err == nil {
			t.Errorf("%s is read", what)
		} else if len(given) > 20 && strings.Contains(err.Error(), given[8:20]) {
			t.Errorf("%s: the error quotes the ticket: %v", what, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	text, err := ticket.Encode(sample())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add(ticket.Prefix)
	f.Add("reeve1.AAAA")
	f.Fuzz(func(t *testing.T, text string) {
		parsed, err := ticket.Parse(text)
		if err != nil {
			return
		}
		again, err := ticket.Encode(parsed)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		reread, err := ticket.Parse(again)
		if err != nil || !proto.Equal(parsed, reread) {
			t.Fatalf("%v was written and read as %v, %v", parsed, reread, err)
		}
	})
}
