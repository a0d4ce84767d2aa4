package output

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/reeveproject/reeve/cli/contexts"
)

// Context is a context: how a cluster is reached, and as whom.
type Context struct {
	Name string `json:"name"`
	// Current says whether it is meant if nothing else is said.
	Current bool `json:"current"`
	// Cluster is the ID of the cluster.
	Cluster string `json:"cluster"`
	// Socket is the local socket of a node; empty: none.
	Socket string `json:"socket"`
	// Address is that of a curator, as it was given; empty: none was.
	Address string `json:"address"`
	// Curators are the addresses that the cluster last said its curators have.
	Curators []string `json:"curators"`
	// Nodes are the addresses of the nodes' own APIs, by node ID.
	Nodes map[string]string `json:"nodes"`
	// KeyFile is the file with the key of the last login; empty: it is not known.
	KeyFile string `json:"key_file"`
	// Session is null if there is none.
	Session *Session `json:"session"`
	// Problem says why the session cannot be read; empty: it can, or there is none.
	Problem string `json:"problem"`
}

// Session is as whom a context is used. Its key is in no document.
type Session struct {
	// Operator is empty for the holder of the owner key.
	Operator string `json:"operator"`
	// Role is "owner", "operator" or "viewer", as the cluster last said.
	Role string    `json:"role"`
	Ends time.Time `json:"ends"`
	// CertificateEnds is when it ends if it is not used before.
	CertificateEnds time.Time `json:"certificate_ends"`
	// Over says whether it has ended.
	Over bool `json:"over"`
}

// who is whose session it is.
func (s Session) who() string { return who(s.Operator) }

func who(operator string) string {
	if operator == "" {
		return "owner"
	}
	return "operator " + operator
}

// NewSession makes the document of a session; nil if there is none.
func NewSession(session *contexts.Session, now time.Time) *Session {
	if session == nil {
		return nil
	}
	return &Session{
		Operator: session.Operator, Role: session.Role, Ends: session.Ends.UTC(),
		CertificateEnds: session.CertificateEnds().UTC(), Over: session.Over(now),
	}
}

// NewContext makes the document of a context. problem is why its session cannot be read.
func NewContext(context contexts.Context, current bool, session *contexts.Session, problem error, now time.Time) Context {
	document := Context{
		Name: context.Name, Current: current, Cluster: context.ClusterID(), Socket: context.Socket, Address: context.Address,
		Curators: context.Curators, Nodes: map[string]string{}, KeyFile: context.KeyFile, Session: NewSession(session, now),
	}
	for _, node := range context.Nodes {
		document.Nodes[node.ID] = node.Address
	}
	if problem != nil {
		document.Problem = problem.Error()
	}
	return document
}

// Contexts is the document of `reeve context list`.
type Contexts struct {
	Contexts []Context `json:"contexts"`
}

func (c Contexts) table(w io.Writer, now time.Time) {
	if len(c.Contexts) == 0 {
		_, _ = fmt.Fprintln(w, "No contexts. `reeve login` makes one.")
		return
	}
	row(w, "CURRENT", "NAME", "CLUSTER", "WHO", "ROLE", "SESSION")
	for _, context := range c.Contexts {
		current, caller, role := " ", "", ""
		if context.Current {
			current = "*"
		}
		if context.Session != nil {
			caller, role = context.Session.who(), context.Session.Role
		}
		row(w, current, context.Name, context.Cluster, caller, role, context.session(now))
	}
}

// session is the state of the session in a few words.
func (c Context) session(now time.Time) string {
	switch {
	case c.Problem != "":
		return "unreadable"
	case c.Session == nil:
		return "none"
	case c.Session.Over:
		return "over"
	default:
		return remaining(c.Session.Ends, now) + " left"
	}
}

// remaining is how long it is until something ends, for people.
func remaining(until, now time.Time) string { return age(&now, until) }

func (c Context) table(w io.Writer, now time.Time) {
	row(w, "Name", c.Name)
	row(w, "Cluster", c.Cluster)
	row(w, "Socket", c.Socket)
	row(w, "Address", c.Address)
	row(w, "Curators", strings.Join(c.Curators, ", "))
	for _, id := range sortedKeys(c.Nodes) {
		row(w, "Node", id+" at "+c.Nodes[id])
	}
	row(w, "Key file", c.KeyFile)
	if c.Session != nil {
		row(w, "Who", c.Session.who()+", role "+c.Session.Role)
		row(w, "Session", c.session(now)+", ends "+c.Session.Ends.Format(time.RFC3339))
		row(w, "Certificate", "ends "+c.Session.CertificateEnds.Format(time.RFC3339)+", renewed by use")
		return
	}
	row(w, "Session", strings.TrimSuffix(c.session(now)+": "+c.Problem, ": "))
}

// Login is the document of `reeve login`.
type Login struct {
	Context string  `json:"context"`
	Cluster string  `json:"cluster"`
	Session Session `json:"session"`
}

func (l Login) table(w io.Writer, now time.Time) {
	row(w, "Who", l.Session.who())
	row(w, "Role", l.Session.Role)
	row(w, "Cluster", l.Cluster)
	row(w, "Until", l.Session.Ends.Format(time.RFC3339)+" (in "+remaining(l.Session.Ends, now)+")")
	row(w, "Context", l.Context)
}

// Logout is the document of `reeve logout`.
type Logout struct {
	Context string `json:"context"`
	// Forgotten says whether there was a session.
	Forgotten bool `json:"forgotten"`
}

func (l Logout) table(w io.Writer, _ time.Time) {
	if l.Forgotten {
		_, _ = fmt.Fprintf(w, "The session of context %s is forgotten.\n", l.Context)
		return
	}
	_, _ = fmt.Fprintf(w, "Context %s had no session.\n", l.Context)
}

// ContextRemoved is the document of `reeve context remove`.
type ContextRemoved struct {
	Context string `json:"context"`
	Cluster string `json:"cluster"`
	// Session says whether its session was forgotten with it.
	Session bool `json:"session"`
	DryRun  bool `json:"dry_run"`
}

func (c ContextRemoved) table(w io.Writer, _ time.Time) {
	what, done := "Context "+c.Context+" (cluster "+c.Cluster+")", "is"
	if c.Session {
		what, done = what+" and its session", "are"
	}
	if c.DryRun {
		_, _ = fmt.Fprintf(w, "%s would be removed.\n", what)
		return
	}
	_, _ = fmt.Fprintf(w, "%s %s removed.\n", what, done)
}

// CA is the document of `reeve ca`.
type CA struct {
	Cluster string `json:"cluster"`
	// Certificates are PEM.
	Certificates string `json:"certificates"`
}

// table is what a file with the certificates holds.
func (c CA) table(w io.Writer, _ time.Time) {
	_, _ = fmt.Fprint(w, c.Certificates)
}
