package params

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/proto/ticket"
)

// Ticket reads the ticket that the parameters of a node name that registers, or have in them. Its errors quote nothing of it.
func Ticket(register *nodev1.Register) (*clusterv1.TicketText, error) {
	path := register.GetTicketFile()
	if path == "" {
		text, err := ticket.Parse(register.GetTicket())
		if err != nil {
			return nil, fmt.Errorf("params: register.ticket of the parameters: %w", err)
		}
		return text, nil
	}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("params: there is no ticket %s (register.ticket_file of the parameters): make one with `reeve ticket create`, and put its text there: %w", path, fs.ErrNotExist)
	}
	if err != nil {
		return nil, fmt.Errorf("params: the ticket cannot be read (register.ticket_file of the parameters): %w", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	text, err := ticket.Read(file)
	if err != nil {
		return nil, fmt.Errorf("params: %s (register.ticket_file of the parameters) cannot be used: %w", path, err)
	}
	return text, nil
}
