package output

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

func publicKey(key ed25519.PublicKey) string { return base64.StdEncoding.EncodeToString(key) }

// Operators is the document of `reeve operator list`.
type Operators struct {
	// OwnerPublicKey is that of the owner key, whose holder may do everything.
	OwnerPublicKey []byte                `json:"owner_public_key"`
	Operators      []*clusterv1.Operator `json:"operators"`
}

func (o Operators) table(w io.Writer, now time.Time) {
	row(w, "NAME", "ROLE", "PUBLIC KEY", "AGE", "ADDED BY")
	row(w, "(owner key)", "owner", publicKey(o.OwnerPublicKey), "", "")
	for _, operator := range o.Operators {
		row(w, operator.GetName(), Kind(operator.GetRole()), publicKey(operator.GetPublicKey()), age(moment(operator.GetCreated()), now), operator.GetCreatedBy())
	}
}

// OperatorChange is the document of `reeve operator add` and `revoke`.
type OperatorChange struct {
	Operator *clusterv1.Operator `json:"operator"`
	// Change is "added" or "revoked".
	Change string `json:"change"`
	// Tickets is the IDs of the tickets that are revoked with it.
	Tickets []string `json:"tickets"`
	// WaitingNodes is the IDs of the machines that have registered with such tickets and are no members. They never become members.
	WaitingNodes []string `json:"waiting_nodes"`
	DryRun       bool     `json:"dry_run"`
}

// NewOperatorRevoked makes the document of an operator who is revoked.
func NewOperatorRevoked(response *clusterv1.RevokeOperatorResponse, dryRun bool) OperatorChange {
	document := OperatorChange{Operator: response.GetOperator(), Change: "revoked", Tickets: []string{}, WaitingNodes: response.GetWaitingNodes(), DryRun: dryRun}
	for _, ticket := range response.GetTickets() {
		document.Tickets = append(document.Tickets, ticket.GetId())
	}
	return document
}

func (c OperatorChange) table(w io.Writer, _ time.Time) {
	done := "is"
	if c.DryRun {
		done = "would be"
	}
	_, _ = fmt.Fprintf(w, "Operator %s (role %s) %s %s.\n", Clean(c.Operator.GetName()), Kind(c.Operator.GetRole()), done, c.Change)
	if len(c.Tickets) > 0 {
		_, _ = fmt.Fprintf(w, "So %s the tickets that it made: %s.\n", map[bool]string{false: "are", true: "would be"}[c.DryRun], Clean(strings.Join(c.Tickets, ", ")))
	}
	neverMembers(w, "tickets of operator "+c.Operator.GetName(), c.WaitingNodes)
}

// neverMembers says which machines do not become members since they have registered with tickets of somebody who does not answer for them any more.
func neverMembers(w io.Writer, tickets string, nodes []string) {
	if len(nodes) > 0 {
		line(w, "Machines that have registered with ", tickets, " never become members (`reeve node delete ID` removes one): ", strings.Join(nodes, ", "), ".")
	}
}

// Key is the document of `reeve operator key` and `reeve owner key`.
type Key struct {
	// File holds the private key.
	File string `json:"file"`
	// PublicKey is base64 of 32 bytes.
	PublicKey string `json:"public_key"`
}

// table is the public half alone, so that it can be sent to a file that --public-key then names.
func (k Key) table(w io.Writer, _ time.Time) {
	_, _ = fmt.Fprintln(w, k.PublicKey)
}

// WhoAmI is the document of `reeve whoami`.
type WhoAmI struct {
	// Operator is empty for the holder of the owner key.
	Operator string `json:"operator"`
	// Role is what the cluster lets the caller do: "owner", "operator" or "viewer".
	Role    string `json:"role"`
	Cluster string `json:"cluster"`
	// Context is the one by which the cluster was found; empty: it was found otherwise.
	Context string `json:"context"`
	// Session is null if the caller proves the owner key in every call.
	Session *Session `json:"session"`
}

func (m WhoAmI) table(w io.Writer, now time.Time) {
	row(w, "Who", who(m.Operator))
	row(w, "Role", m.Role)
	row(w, "Cluster", m.Cluster)
	row(w, "Context", m.Context)
	if m.Session == nil {
		row(w, "Proof", "the owner key, in every call")
		return
	}
	row(w, "Until", m.Session.Ends.Format(time.RFC3339)+" (in "+remaining(m.Session.Ends, now)+")")
}

// OwnerReplaced is the document of `reeve owner replace`.
type OwnerReplaced struct {
	Node string `json:"node"`
	// PublicKey is the new owner key: base64 of 32 bytes.
	PublicKey string `json:"public_key"`
	// WaitingNodes is the IDs of the machines that have registered with tickets of a former owner key and are no members. They never become members. A dry run names none.
	WaitingNodes []string `json:"waiting_nodes"`
	DryRun       bool     `json:"dry_run"`
}

func (o OwnerReplaced) table(w io.Writer, _ time.Time) {
	if o.DryRun {
		_, _ = fmt.Fprintf(w, "The owner key would be replaced by %s.\n", o.PublicKey)
		return
	}
	_, _ = fmt.Fprintf(w, "The owner key is now %s. What the former one signed is refused from now on.\n", o.PublicKey)
	neverMembers(w, "tickets of a former owner key", o.WaitingNodes)
}

func sortedKeys(of map[string]string) []string { return slices.Sorted(maps.Keys(of)) }
