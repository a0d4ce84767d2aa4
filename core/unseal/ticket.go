package unseal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/params"
	"github.com/reeveproject/reeve/core/seal"
)

// RenewTicket makes a node that is no member yet use the present ticket of its parameters: its first one may have expired, and the cluster's CA may
// have changed while the machine waited. Without a usable ticket there, the node goes on with the one that it has. The volume must be open.
func (r *Room) RenewTicket(ctx context.Context, opened *Opened) error {
	register, kept := r.config.Parameters.GetRegister(), opened.Configuration
	if register == nil || !kept.Phase.Before(seal.Member) || kept.Registration == nil {
		return nil
	}
	// Only a node that is not registered yet needs the secret of the ticket. One that waits for approval needs the CA and the curators that the ticket names.
	registers := kept.Phase == seal.Registering
	ticket, err := params.Ticket(register)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		r.config.Log.Warn("cannot use the ticket of the parameters; going on with the former one", "error", err)
		return nil
	case ticket.GetClusterId() != kept.ClusterID && !registers:
		r.config.Log.Warn("the ticket of the parameters is for another cluster; going on with the former one", "cluster", kept.ClusterID, "other", ticket.GetClusterId())
		return nil
	case ticket.GetClusterId() != kept.ClusterID:
		return fmt.Errorf("unseal: this node was made to come into cluster %s, and the ticket of its parameters is for cluster %s: put a ticket for the former there, or start with empty directories",
			kept.ClusterID, ticket.GetClusterId())
	case ticket.GetTicketId() == kept.Registration.TicketID && (!registers || r.UseTicket(func([]byte) error { return nil }) == nil):
		return nil
	}
	var secret *keys.Secret
	if registers {
		if secret, err = keys.SecretOf(ticket.GetSecret()); err != nil {
			return err
		}
	}
	clear(ticket.Secret)
	next := registrationOf(ticket)
	if err := r.Update(ctx, func(c *seal.Configuration) { c.Ticket, c.Registration = secret, next }); err != nil {
		secret.Destroy()
		return err
	}
	kept.Registration = next
	r.config.Log.Info("the node finds its cluster by another ticket", "ticket", next.TicketID, "phase", kept.Phase)
	return nil
}
