package params

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/reeveproject/reeve/proto/plainfile"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/proto/ticket"
)

// Ticket returns the ticket of parameters that register, from the file that they name or from themselves. Its errors quote nothing of the ticket.
func Ticket(register *nodev1.Register) (*clusterv1.TicketText, error) {
	path := register.GetTicketFile()
	if path == "" {
		text, err := ticket.Parse(register.GetTicket())
		if err != nil {
			return nil, fmt.Errorf("params: register.ticket in the parameters: %w", err)
		}
		return text, nil
	}
	file, err := plainfile.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("params: there is no ticket file %s (register.ticket_file in the parameters): make a ticket with `reeve ticket create`, and put its text there: %w", path, fs.ErrNotExist)
	}
	if err != nil {
		return nil, fmt.Errorf("params: cannot read the ticket (register.ticket_file in the parameters): %w", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	text, err := ticket.Read(file)
	if err != nil {
		return nil, fmt.Errorf("params: cannot use the ticket in %s (register.ticket_file in the parameters): %w", path, err)
	}
	return text, nil
}
