package output

import (
	"fmt"
	"io"
	"strings"
	"time"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

var (
	_ Document = Tickets{}
	_ Document = TicketMade{}
	_ Document = TicketRevoked{}
)

// Ticket is what a machine shows to register, without its secret.
type Ticket struct {
	ID      string     `json:"id"`
	Created *time.Time `json:"created"`
	// CreatedBy is "owner", or the operator's name.
	CreatedBy string     `json:"created_by"`
	Expires   *time.Time `json:"expires"`
	// Uses is how many nodes may register with it, Used how many have.
	Uses uint32 `json:"uses"`
	Used uint32 `json:"used"`
	// Roles are those that nodes may ask for; none: any, or none where the ticket approves.
	Roles  []string          `json:"roles"`
	Labels map[string]string `json:"labels"`
	// AutoApprove says that nodes which register with it are members without anybody looking at them.
	AutoApprove bool   `json:"auto_approve"`
	Note        string `json:"note"`
	// Problem is what is wrong with its record, of which nothing but the ID is known then; empty: nothing.
	Problem string `json:"problem"`
}

// NewTicket makes the document of a ticket.
func NewTicket(t *clusterv1.Ticket) Ticket {
	return Ticket{
		ID: t.GetId(), Created: moment(t.GetCreated()), CreatedBy: t.GetCreatedBy(), Expires: moment(t.GetExpires()), Uses: t.GetUses(), Used: t.GetUsed(),
		Roles: list(t.GetRoles()), Labels: dictionary(t.GetLabels()), AutoApprove: t.GetAutoApprove(), Note: t.GetNote(), Problem: t.GetProblem(),
	}
}

// Tickets is the document of `reeve ticket list`.
type Tickets struct {
	Tickets []Ticket `json:"tickets"`
}

// TicketMade is the document of `reeve ticket create`.
type TicketMade struct {
	Ticket Ticket `json:"ticket"`
	// Text is what the machine needs, a secret; empty in a dry run, and where it went to a file.
	Text string `json:"text"`
	// File is where the text was written; empty: it is in Text.
	File   string `json:"file"`
	DryRun bool   `json:"dry_run"`
}

// TicketRevoked is the document of `reeve ticket revoke`.
type TicketRevoked struct {
	// Ticket is as it was.
	Ticket Ticket `json:"ticket"`
	DryRun bool   `json:"dry_run"`
}

func (t Tickets) table(w io.Writer, now time.Time) {
	row(w, "TICKET", "ENDS IN", "USED", "ROLES", "LABELS", "APPROVES", "AGE", "MADE BY", "NOTE")
	for _, ticket := range t.Tickets {
		if ticket.Problem != "" {
			row(w, ticket.ID, "", "", "", "", "", "", "", "nobody can register with it, revoke it: "+ticket.Problem)
			continue
		}
		row(w, ticket.ID, ticket.left(now), fmt.Sprintf("%d of %d", ticket.Used, ticket.Uses), ticket.roles(), labels(ticket.Labels), yesNo(ticket.AutoApprove),
			age(ticket.Created, now), ticket.CreatedBy, ticket.Note)
	}
}

// left is how long a ticket can still be used.
func (t Ticket) left(now time.Time) string {
	if t.Expires == nil {
		return ""
	}
	if !now.Before(*t.Expires) {
		return "over"
	}
	return short(t.Expires.Sub(now))
}

// roles are those that nodes may ask for, in a cell.
func (t Ticket) roles() string {
	switch {
	case len(t.Roles) > 0:
		return strings.Join(t.Roles, ",")
	case t.AutoApprove:
		return "none"
	}
	return "any"
}

// describe says in a sentence without its end what a ticket lets happen.
func (t Ticket) describe(now time.Time) string {
	text := fmt.Sprintf("for %s", plural(int(t.Uses), "node"))
	if left := t.left(now); left != "" {
		text += ", good for " + left
	}
	if t.AutoApprove {
		text += ", which approves by itself"
	}
	return text
}

// table is the text alone, so that it can be piped to where it is needed.
func (m TicketMade) table(w io.Writer, now time.Time) {
	switch {
	case m.DryRun:
		line(w, "A ticket would be made ", m.Ticket.describe(now), ". Nothing was changed (--dry-run).")
	case m.File != "":
		line(w, "Ticket ", m.Ticket.ID, " ", m.Ticket.describe(now), ", is in ", m.File, ".")
	default:
		_, _ = fmt.Fprintln(w, Clean(m.Text))
	}
}

func (r TicketRevoked) table(w io.Writer, _ time.Time) {
	if r.DryRun {
		line(w, "Ticket ", r.Ticket.ID, " would be revoked. Nothing was changed (--dry-run).")
		return
	}
	line(w, "Ticket ", r.Ticket.ID, " is revoked: nobody registers with it any more. Nodes that have, stay (", number(r.Ticket.Used), ").")
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
