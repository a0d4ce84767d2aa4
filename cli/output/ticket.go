package output

import (
	"fmt"
	"io"
	"strings"
	"time"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// Tickets is the document of `reeve ticket list`.
type Tickets struct {
	Tickets []*clusterv1.Ticket `json:"tickets"`
}

// TicketMade is the document of `reeve ticket create`.
type TicketMade struct {
	Ticket *clusterv1.Ticket `json:"ticket"`
	// Text is what the machine needs, a secret; empty in a dry run, and where it went to a file.
	Text string `json:"text"`
	// File is where the text was written; empty: it is in Text.
	File   string `json:"file"`
	DryRun bool   `json:"dry_run"`
}

// TicketRevoked is the document of `reeve ticket revoke`.
type TicketRevoked struct {
	// Ticket is as it was.
	Ticket *clusterv1.Ticket `json:"ticket"`
	DryRun bool              `json:"dry_run"`
}

func (t Tickets) table(w io.Writer, now time.Time) {
	row(w, "TICKET", "ENDS IN", "USED", "ROLES", "LABELS", "APPROVES", "AGE", "MADE BY", "NOTE")
	for _, ticket := range t.Tickets {
		if ticket.GetProblem() != "" {
			row(w, ticket.GetId(), "", "", "", "", "", "", "", "nobody can register with it, revoke it: "+ticket.GetProblem())
			continue
		}
		row(w, ticket.GetId(), timeLeft(ticket, now), fmt.Sprintf("%d of %d", ticket.GetUsed(), ticket.GetUses()), ticketRoles(ticket), labels(ticket.GetLabels()),
			yesNo(ticket.GetAutoApprove()), age(moment(ticket.GetCreated()), now), ticket.GetCreatedBy(), ticket.GetNote())
	}
}

// timeLeft is how long a ticket can still be used.
func timeLeft(t *clusterv1.Ticket, now time.Time) string {
	expires := moment(t.GetExpires())
	switch {
	case expires == nil:
		return ""
	case !now.Before(*expires):
		return "over"
	}
	return short(expires.Sub(now))
}

// ticketRoles are the roles that nodes may ask for, in a cell.
func ticketRoles(t *clusterv1.Ticket) string {
	switch {
	case len(t.GetRoles()) > 0:
		return strings.Join(t.GetRoles(), ",")
	case t.GetAutoApprove():
		return "none"
	}
	return "any"
}

// describeTicket says in a sentence without its end what a ticket allows.
func describeTicket(t *clusterv1.Ticket, now time.Time) string {
	text := fmt.Sprintf("for %s", plural(int(t.GetUses()), "node"))
	if left := timeLeft(t, now); left != "" {
		text += ", good for " + left
	}
	if t.GetAutoApprove() {
		text += ", which approves by itself"
	}
	return text
}

// table is the text alone, so that it can be piped to where it is needed.
func (m TicketMade) table(w io.Writer, now time.Time) {
	switch {
	case m.DryRun:
		line(w, "A ticket would be made ", describeTicket(m.Ticket, now), ". Nothing was changed (--dry-run).")
	case m.File != "":
		line(w, "Ticket ", m.Ticket.GetId(), " ", describeTicket(m.Ticket, now), ", is in ", m.File, ".")
	default:
		_, _ = fmt.Fprintln(w, Clean(m.Text))
	}
}

func (r TicketRevoked) table(w io.Writer, _ time.Time) {
	if r.DryRun {
		line(w, "Ticket ", r.Ticket.GetId(), " would be revoked. Nothing was changed (--dry-run).")
		return
	}
	line(w, "Ticket ", r.Ticket.GetId(), " is revoked: nobody registers with it any more. Nodes that have, stay (", number(r.Ticket.GetUsed()), ").")
}

// labels are labels in a cell.
func labels(of map[string]string) string {
	var texts []string
	for _, name := range sortedKeys(of) {
		texts = append(texts, name+"="+of[name])
	}
	return strings.Join(texts, ",")
}

// plural is a number with its noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
