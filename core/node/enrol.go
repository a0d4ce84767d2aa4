package node

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/catalog"
	"github.com/reeveproject/reeve/core/enrol"
	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/membership"
	"github.com/reeveproject/reeve/core/params"
	"github.com/reeveproject/reeve/core/seal"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// renewTicket has a node that is no member yet go by the ticket that its parameters have now: the one with which it began may have ended, and the cluster's CA may
// have changed while the machine waited. Where there is none any more, it goes on with the one that it has.
func (w *whole) renewTicket(ctx context.Context) error {
	register, kept := w.node.config.Parameters.GetRegister(), w.opened.Configuration
	if register == nil || !kept.Phase.Before(seal.Member) || kept.Registration == nil {
		return nil
	}
	// Only who is not registered yet needs the ticket itself; who waits for approval, the CA and the curators that it names.
	registers := kept.Phase == seal.Registering
	ticket, err := params.Ticket(register)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		w.log.Warn("the node goes on with the ticket that it has, since the one of its parameters cannot be used", "error", err)
		return nil
	case ticket.GetClusterId() != kept.ClusterID && !registers:
		w.log.Warn("the node goes on with the ticket that it has, since the one of its parameters is for another cluster", "cluster", kept.ClusterID, "other", ticket.GetClusterId())
		return nil
	case ticket.GetClusterId() != kept.ClusterID:
		return fmt.Errorf("node: this node was made to come into cluster %s, and the ticket of its parameters is for cluster %s: put a ticket for the former there, or start with empty directories",
			kept.ClusterID, ticket.GetClusterId())
	case ticket.GetTicketId() == kept.Registration.TicketID && (!registers || w.node.room.UseTicket(func([]byte) error { return nil }) == nil):
		return nil
	}
	var secret *keys.Secret
	if registers {
		if secret, err = keys.SecretOf(ticket.GetSecret()); err != nil {
			return err
		}
	}
	clear(ticket.Secret)
	next := &seal.Registration{TicketID: ticket.GetTicketId(), CAPins: ticket.GetCaPins(), Curators: ticket.GetCurators()}
	if err := w.node.room.Update(ctx, func(c *seal.Configuration) { c.Ticket, c.Registration = secret, next }); err != nil {
		secret.Destroy()
		return err
	}
	kept.Registration = next
	w.log.Info("the node finds its cluster by another ticket", "ticket", next.TicketID, "phase", kept.Phase)
	return nil
}

// enrol is how the cluster takes the node in; nil if the node has made its cluster, or is a member.
func (w *whole) enrol() *membership.Enrol {
	configuration := w.opened.Configuration
	if configuration.Registration == nil || configuration.Phase == seal.Member {
		return nil
	}
	return &membership.Enrol{
		Enrolment: w.enrolment(), Request: w.registerRequest, UseTicket: w.node.room.UseTicket, UseCUK: w.node.room.UseCUK, Incarnation: w.node.room.Raise,
		Keep: w.keepCommitted,
	}
}

// enrolment is the cluster's service of the name, for this node's key.
func (w *whole) enrolment() membership.Enrolment {
	configuration := w.opened.Configuration
	return enrolment{key: configuration.NodeKey, client: enrol.New(enrol.Config{
		Log: w.log.Named("enrol"), ClusterID: configuration.ClusterID, NodeID: configuration.NodeID(), Pins: configuration.Registration.CAPins,
		Curators: func() []string { return w.member.Registration().Curators },
	})}
}

// enrolment is the client of the service with the node's key, in the words of membership.
type enrolment struct {
	client *enrol.Client
	key    ed25519.PrivateKey
}

// Register implements membership.Enrolment.
func (e enrolment) Register(ctx context.Context, request *clusterv1.RegisterRequest) (*clusterv1.RegisterResponse, error) {
	response, err := e.client.Register(ctx, e.key, request)
	return response, enrolmentError(err)
}

// Await implements membership.Enrolment.
func (e enrolment) Await(ctx context.Context, tell func(*clusterv1.AwaitResponse)) error {
	return enrolmentError(e.client.Await(ctx, e.key, func(answer *clusterv1.AwaitResponse) error {
		tell(answer)
		return ctx.Err()
	}))
}

// Commit implements membership.Enrolment.
func (e enrolment) Commit(ctx context.Context, request *clusterv1.CommitRequest) (*clusterv1.CommitResponse, error) {
	response, err := e.client.Commit(ctx, e.key, request)
	return response, enrolmentError(err)
}

func enrolmentError(err error) error {
	var removed *enrol.RemovedError
	var refused *enrol.RefusedError
	var pins *enrol.PinError
	switch {
	case errors.As(err, &removed):
		return &membership.RemovedError{NodeID: removed.NodeID, Reason: removed.Reason}
	case errors.As(err, &refused):
		return &membership.RefusedError{Err: errors.New(refused.Message)}
	case errors.As(err, &pins):
		return &membership.RefusedError{Err: err}
	}
	return err
}

// registerRequest is what the node says of itself and asks for.
func (w *whole) registerRequest(ctx context.Context) (*clusterv1.RegisterRequest, error) {
	register := w.node.config.Parameters.GetRegister()
	storage := storageOf(w.node.room)
	// Who approves the node looks at them, so they are waited for.
	addresses, err := w.net.Addresses().Wait(ctx, func([]string) bool { return true })
	if err != nil {
		return nil, fmt.Errorf("the addresses of this machine are not known: %w", err)
	}
	return &clusterv1.RegisterRequest{
		JoinPublicKey: w.opened.Configuration.JoinKey.Public().(ed25519.PublicKey), Labels: register.GetLabels(), Roles: askedFor(register.GetRoles()), Version: w.node.config.Version,
		Addresses: addresses, Sealer: storage.GetSealer(), Volume: storage.GetKind(),
	}, nil
}

// askedFor are the roles that the parameters ask for.
func askedFor(asked []*nodev1.BootstrapRole) (wanted []*clusterv1.RoleAssignment) {
	for _, role := range asked {
		wanted = append(wanted, &clusterv1.RoleAssignment{Role: role.GetRole(), Configuration: role.GetConfiguration()})
	}
	return wanted
}

// keepCommitted keeps what the cluster has assigned to the node, and then has it be what should run: a member always finds an assignment.
func (w *whole) keepCommitted(answer *clusterv1.CommitResponse) error {
	assigned := &catalog.Assignment{
		Roles: answer.GetNode().GetRoles(), Plugins: answer.GetPlugins(), Policy: answer.GetPolicy(), Drained: answer.GetNode().GetDrained(),
		ClusterUser: cmp.Or(answer.GetClusterUser(), w.clusterUser()),
	}
	if err := catalog.WriteAssignment(w.base.storage.Assignment(), assigned); err != nil {
		return err
	}
	w.committed.Set(assigned)
	return nil
}

// clusterUser is the ConsensusUser of the cluster API, as far as the node knows it by now.
func (w *whole) clusterUser() string {
	committed, _ := w.committed.Get()
	return cmp.Or(committed.ClusterAPIUser(), w.known.ClusterAPIUser())
}

// catalog is what the node knew of the catalog when it started.
func (w *whole) catalog() []*clusterv1.PluginRecord {
	if w.builtin != nil {
		return w.builtin
	}
	return w.known.Plugins
}

// knownCurators is where curators were when the node last heard of any, or what its ticket says.
func (w *whole) knownCurators() []string {
	if known := w.member.Registration(); known != nil {
		return known.Curators
	}
	return nil
}

// rewrite is how long the node waits before it tries again to keep what it has to.
const rewrite = 5 * time.Second

// raise has the number of this start of the core be kept, and published once it is: nobody is called before that.
func raise(ctx context.Context, log hclog.Logger, raise func() (*clusterv1.Incarnation, error), to *event.Value[*clusterv1.Incarnation]) error {
	for {
		now, err := raise()
		if err == nil {
			if before, _ := to.Get(); before != now {
				to.Set(now)
			}
			return nil
		}
		log.Error("the number of this start of the core cannot be kept, and the cluster is not called before it is", "error", err, "again", rewrite)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(rewrite):
		}
	}
}
