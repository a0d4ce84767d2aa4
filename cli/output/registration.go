package output

import (
	"crypto/sha256"
	"encoding/base64"
	"io"
	"strings"
	"time"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// Fingerprint is how people compare a public key with what its holder shows: the SHA-256 of it. Empty for no key.
func Fingerprint(key []byte) string {
	if len(key) == 0 {
		return ""
	}
	sum := sha256.Sum256(key)
	return "SHA256:" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// Registration is what a machine said of itself, and showed, when it registered.
type Registration struct {
	// TicketID is that of the ticket that it showed.
	TicketID string `json:"ticket_id"`
	// PeerAddress is from where it called.
	PeerAddress string   `json:"peer_address"`
	Addresses   []string `json:"addresses"`
	Version     string   `json:"version"`
	// Sealer is what seals its secrets: "file" or "tpm2".
	Sealer string `json:"sealer"`
	// Volume is the kind of its volume.
	Volume string `json:"volume"`
	// Roles are those that it asks for.
	Roles []string   `json:"roles"`
	Time  *time.Time `json:"time"`
	// Automatic says that its ticket approved it.
	Automatic bool `json:"automatic"`
}

func newRegistration(r *clusterv1.Registration) *Registration {
	if r == nil {
		return nil
	}
	registration := &Registration{
		TicketID: r.GetTicketId(), PeerAddress: r.GetPeerAddress(), Addresses: r.GetAddresses(), Version: r.GetVersion(), Sealer: r.GetSealer(), Volume: r.GetVolume(),
		Roles: []string{}, Time: moment(r.GetTime()), Automatic: r.GetAutomatic(),
	}
	for _, role := range r.GetRoles() {
		registration.Roles = append(registration.Roles, role.GetRole())
	}
	return registration
}

// storeText is a node's place in the store, in a sentence.
func storeText(s *clusterv1.StoreMembership) string {
	text := "no member yet"
	switch {
	case s.GetMemberId() != "" && s.GetLearner():
		text = "member " + s.GetMemberId() + ", which learns"
	case s.GetMemberId() != "":
		text = "member " + s.GetMemberId() + ", which votes"
	}
	switch {
	case s.GetStuck():
		text += "; STUCK: " + s.GetStep()
	case s.GetStep() != "":
		text += "; " + s.GetStep()
	}
	return text
}

// rows says what a machine said of itself when it registered.
func (r *Registration) rows(w io.Writer, now time.Time) {
	if r == nil {
		return
	}
	how := "with ticket " + r.TicketID
	if r.Automatic {
		how += ", which approved it by itself"
	}
	row(w, "Registered", ago(r.Time, now)+" from "+r.PeerAddress+" "+how)
	row(w, "Asked for", strings.Join(r.Roles, ", "))
	row(w, "Said of itself", "addresses "+strings.Join(r.Addresses, ", ")+"; version "+r.Version+"; volume "+r.volume()+"; secrets "+explainSealer(r.Sealer))
}

func (r *Registration) volume() string { return explainVolume(r.Volume, r.Volume != "plain") }

// Lines are what there is to look at before a node is approved: what is proven first.
func (n Node) Lines(now time.Time) []string {
	lines := []string{
		"Node " + n.ID + " is " + n.State + ". What is proven:",
		"  public key    " + n.Fingerprint,
	}
	r := n.Registration
	if r == nil {
		return append(lines, "It made the cluster: it registered with no ticket.")
	}
	lines = append(lines,
		"  ticket        "+r.TicketID,
		"  called from   "+r.PeerAddress+", "+ago(r.Time, now),
		"What it says of itself:",
		"  addresses     "+orNone(r.Addresses),
		"  version       "+r.Version,
		"  volume        "+r.volume(),
		"  secrets       "+explainSealer(r.Sealer),
	)
	for i := range lines {
		lines[i] = Clean(lines[i])
	}
	return lines
}

// rows says what the cluster knows of a node: since when it is in its state, how it came, its place in the store, and what is wrong. known says that the node
// itself has said how it sees its membership.
func (n Node) rows(w io.Writer, now time.Time, known bool) {
	state := n.state()
	if n.Since != nil {
		state += ", for " + age(n.Since, now)
	}
	row(w, "State", state)
	row(w, "Healthy", n.health())
	if n.Problem != "" {
		row(w, "Problem", n.Problem)
	}
	if n.Membership != nil && !known {
		membership := membershipText(n.Membership)
		if since := moment(n.Membership.GetSince()); since != nil {
			membership += " (for " + age(since, now) + ")"
		}
		row(w, "Membership", membership)
	}
	row(w, "Key", n.Fingerprint)
	n.Registration.rows(w, now)
	if n.Store != nil {
		row(w, "In the store", storeText(n.Store))
	}
}

// LabelText is the node's labels in a line.
func (n Node) LabelText() string {
	if len(n.Labels) == 0 {
		return "none"
	}
	return labels(n.Labels)
}
