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

// registrationRows say what a machine said of itself when it registered.
func registrationRows(w io.Writer, r *clusterv1.Registration, now time.Time) {
	if r == nil {
		return
	}
	how := "with ticket " + r.GetTicketId()
	if r.GetAutomatic() {
		how += ", which approved it by itself"
	}
	row(w, "Registered", ago(moment(r.GetTime()), now)+" from "+r.GetPeerAddress()+" "+how)
	row(w, "Asked for", strings.Join(RoleNames(r.GetRoles()), ", "))
	row(w, "Said of itself", "addresses "+strings.Join(r.GetAddresses(), ", ")+"; version "+r.GetVersion()+"; volume "+registeredVolume(r)+"; secrets "+explainSealer(r.GetSealer()))
}

func registeredVolume(r *clusterv1.Registration) string {
	return explainVolume(r.GetVolume(), r.GetVolume() != "plain")
}

// RoleNames are the names of assigned roles.
func RoleNames(of []*clusterv1.RoleAssignment) []string {
	names := []string{}
	for _, role := range of {
		names = append(names, role.GetRole())
	}
	return names
}

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
		"  ticket        "+r.GetTicketId(),
		"  called from   "+r.GetPeerAddress()+", "+ago(moment(r.GetTime()), now),
		"What it says of itself:",
		"  addresses     "+orNone(r.GetAddresses()),
		"  version       "+r.GetVersion(),
		"  volume        "+registeredVolume(r),
		"  secrets       "+explainSealer(r.GetSealer()),
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
	if n.Membership != nil && !known {
		membership := membershipText(n.Membership)
		if since := moment(n.Membership.GetSince()); since != nil {
			membership += " (for " + age(since, now) + ")"
		}
		row(w, "Membership", membership)
	}
	row(w, "Key", n.Fingerprint)
	registrationRows(w, n.Registration, now)
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
