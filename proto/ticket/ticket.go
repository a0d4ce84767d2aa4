// Package ticket writes and reads the text of a ticket: all that a machine needs to register with a cluster, in one word that can be copied, kept in a file
// or piped. It holds a secret until the ticket is spent: it belongs in files that only its owner reads, and never on a command line.
package ticket

import (
	"bufio"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

const (
	// Prefix is how the text of every ticket begins; the number is the version of the format.
	Prefix = "reeve1."
	// SecretSize is the length of a ticket's secret in bytes: it cannot be guessed, so that nothing has to slow down who tries.
	SecretSize = 32
	// PinSize is the length of a pin: a SHA-256.
	PinSize = 32
	// Max is the longest text in bytes, far more than the pins and addresses of a cluster take.
	Max = 8192

	maxPins     = 8
	maxCurators = 64
)

// Encode returns the text of a ticket. It fails if Parse would refuse it.
func Encode(text *clusterv1.TicketText) (string, error) {
	if err := check(text); err != nil {
		return "", err
	}
	content, err := proto.MarshalOptions{Deterministic: true}.Marshal(text)
	if err != nil {
		return "", fmt.Errorf("ticket: %w", err)
	}
	encoded := Prefix + base64.RawURLEncoding.EncodeToString(content)
	if len(encoded) > Max {
		return "", fmt.Errorf("ticket: its text would be %d bytes long, and at most %d are read: it names too many curators", len(encoded), Max)
	}
	return encoded, nil
}

// Parse reads the text of a ticket; space around it is left out. Its errors quote nothing of the text.
func Parse(text string) (*clusterv1.TicketText, error) {
	text = strings.TrimSpace(text)
	switch {
	case text == "":
		return nil, errors.New("ticket: it is empty")
	case len(text) > Max:
		return nil, fmt.Errorf("ticket: it is longer than the %d bytes that a ticket has at most", Max)
	case !strings.HasPrefix(text, Prefix):
		return nil, fmt.Errorf("ticket: it does not begin with %q: `reeve ticket create` prints tickets", Prefix)
	}
	content, err := base64.RawURLEncoding.Strict().DecodeString(text[len(Prefix):])
	if err != nil {
		return nil, errors.New("ticket: it is damaged, a part of it may be missing: copy all of it")
	}
	parsed := new(clusterv1.TicketText)
	if err := proto.Unmarshal(content, parsed); err != nil {
		return nil, errors.New("ticket: it is damaged, a part of it may be missing: copy all of it")
	}
	if err := check(parsed); err != nil {
		return nil, err
	}
	return parsed, nil
}

// Read reads the text of a ticket from a file or a pipe, and no more of it than a ticket can be long.
func Read(from io.Reader) (*clusterv1.TicketText, error) {
	content, err := io.ReadAll(io.LimitReader(bufio.NewReader(from), Max+64))
	defer clear(content)
	if err != nil {
		return nil, fmt.Errorf("ticket: %w", err)
	}
	return Parse(string(content))
}

func check(text *clusterv1.TicketText) error {
	if err := checkID("cluster", text.GetClusterId(), 32); err != nil {
		return err
	}
	if err := checkID("ticket", text.GetTicketId(), 16); err != nil {
		return err
	}
	if len(text.GetSecret()) != SecretSize {
		return fmt.Errorf("ticket: its secret has %d bytes, not %d", len(text.GetSecret()), SecretSize)
	}
	if n := len(text.GetCaPins()); n == 0 || n > maxPins {
		return fmt.Errorf("ticket: it pins %d certificates of the cluster, not 1 to %d", n, maxPins)
	}
	for _, pin := range text.GetCaPins() {
		if len(pin) != PinSize {
			return fmt.Errorf("ticket: a pin has %d bytes, not %d", len(pin), PinSize)
		}
	}
	if n := len(text.GetCurators()); n == 0 || n > maxCurators {
		return fmt.Errorf("ticket: it names %d curators, not 1 to %d", n, maxCurators)
	}
	for _, curator := range text.GetCurators() {
		if host, port, err := net.SplitHostPort(curator); err != nil || host == "" || port == "" || port == "0" || len(curator) > 256 {
			return errors.New("ticket: the address of a curator is no host:port")
		}
	}
	return nil
}

func checkID(whose, id string, digits int) error {
	if raw, err := hex.DecodeString(id); err != nil || len(id) != digits || hex.EncodeToString(raw) != id {
		return fmt.Errorf("ticket: the ID of its %s is not %d hexadecimal digits", whose, digits)
	}
	return nil
}
