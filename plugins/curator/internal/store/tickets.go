package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	curatorv1 "github.com/reeveproject/reeve/plugins/curator/internal/reeve/curator/v1"
	"github.com/reeveproject/reeve/plugins/curator/internal/steps"
	"github.com/reeveproject/reeve/sdk/checkpoint"
)

// ticketIDSize is the length of a ticket's ID in bytes, of which the ID is the hex.
const ticketIDSize = 8

// IsTicketID reports whether a text has the form of a ticket's ID, and so may be part of a key.
func IsTicketID(id string) bool {
	raw, err := hex.DecodeString(id)
	return err == nil && len(raw) == ticketIDSize && hex.EncodeToString(raw) == id
}

func checkTicket(id string, ticket *curatorv1.Ticket) error {
	switch {
	case ticket.GetId() != id || !IsTicketID(id):
		return fmt.Errorf("it is about ticket %q", ticket.GetId())
	case len(ticket.GetSecretSha256()) != sha256.Size:
		return errors.New("it does not tell its secret")
	case ticket.GetExpires() == nil:
		return errors.New("it has no end")
	}
	return nil
}

// ReadEnrolment reads what says whether a machine may come in: cluster, CA, the record of the node and the ticket, as far as there are such, and who may have made the ticket.
func (s *Store) ReadEnrolment(ctx context.Context, node, ticket string) (*State, error) {
	gets := []clientv3.Op{
		clientv3.OpGet(keyCluster), clientv3.OpGet(keyCertificates), clientv3.OpGet(keyGeneration), clientv3.OpGet(nodeKey(node)), clientv3.OpGet(prefixOperators, clientv3.WithPrefix()),
	}
	if IsTicketID(ticket) {
		gets = append(gets, clientv3.OpGet(ticketKey(ticket)))
	}
	state, err := s.read(ctx, "read a ticket", gets...)
	return whole(state, err)
}

// ReadTickets reads cluster, CA, all tickets and who may have made them. Unlike the records that are known, it does not hold tickets that were swept.
func (s *Store) ReadTickets(ctx context.Context) (*State, error) {
	state, err := s.read(ctx, "read the tickets", clientv3.OpGet(keyCluster), clientv3.OpGet(keyCertificates),
		clientv3.OpGet(prefixTickets, clientv3.WithPrefix()), clientv3.OpGet(prefixOperators, clientv3.WithPrefix()))
	return whole(state, err)
}

// SweepTickets removes tickets with which nobody can register any more, unless somebody has changed one since a revision. No decision depends on them: it is
// no change of the cluster. At most as many as one transaction takes are removed.
func (s *Store) SweepTickets(ctx context.Context, revision int64, ids []string) error {
	ids = ids[:min(len(ids), maxOperations)]
	if len(ids) == 0 {
		return nil
	}
	var writes transaction
	for _, id := range ids {
		writes.delete(ticketKey(id))
	}
	bounded, cancel := context.WithTimeout(ctx, s.answerWithin)
	defer cancel()
	err := checkpoint.Around(steps.SweepTickets, func() error {
		_, err := s.client.Txn(bounded).
			If(clientv3.Compare(clientv3.ModRevision(prefixTickets).WithPrefix(), "<", revision+1)).
			Then(writes.ops...).Commit()
		return err
	})
	if err != nil {
		return s.failed(ctx, "remove tickets that nobody can use any more", err)
	}
	return nil
}
