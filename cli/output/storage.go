package output

import (
	"io"
	"strings"
	"time"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// ExplainClosed says in a sentence why nothing runs on the node, and what to do; empty: the volume is open, or the node does not say.
func ExplainClosed(s *clusterv1.StorageStatus) string {
	state := State(s.GetState())
	if state == "Open" || state == "" {
		return ""
	}
	text := "the volume is " + state
	switch waiting := waitingSources(s); {
	case s.GetProblem() != "":
		text += ": " + s.GetProblem()
	case state == "Sealed":
		text += ": somebody asked for it, and `reeve node unlock` opens it"
	case state == "Locked" && len(waiting) > 0:
		text += ": " + strings.Join(waiting, "; ")
		if s.GetRecoverable() {
			text += " (`reeve node unlock`)"
		}
	case s.GetStep() != "":
		text += ": " + s.GetStep()
	}
	return text
}

// waitingSources are the sources that may still bring the key, each with what it waits for.
func waitingSources(s *clusterv1.StorageStatus) []string {
	var texts []string
	for _, source := range s.GetSources() {
		if source.GetState() == clusterv1.CukSourceState_CUK_SOURCE_STATE_WAITING {
			texts = append(texts, source.GetName()+" waits: "+source.GetReason())
		}
	}
	return texts
}

// storageRows write what there is to say of a volume. kind is what a node says that says no more.
func storageRows(w io.Writer, s *clusterv1.StorageStatus, kind string) {
	if s == nil {
		row(w, "Volume", explainVolume(kind, kind != "plain"))
		return
	}
	volume := explainVolume(s.GetKind(), s.GetEncrypted()) + ": " + State(s.GetState())
	if s.GetLocation() != "" {
		volume += ", " + s.GetLocation()
	}
	row(w, "Volume", volume)
	row(w, "Secrets", explainSealer(s.GetSealer()))
	for _, source := range s.GetSources() {
		text, reason := source.GetName()+": "+State(source.GetState()), source.GetReason()
		if State(source.GetState()) == "Failed" && strings.Contains(s.GetProblem(), reason) {
			reason = "" // the problem has a line of its own below
		}
		row(w, "Key source", WithReason(text, reason))
	}
	if s.GetEncrypted() {
		recovery := "the owner's recovery key opens it"
		if !s.GetRecoverable() {
			recovery = "NOT RECOVERABLE: no recovery key opens it"
		}
		row(w, "Recovery", recovery)
	}
	if s.GetStep() != "" {
		row(w, "Step", s.GetStep())
	}
	if s.GetProblem() != "" {
		row(w, "Problem", s.GetProblem())
	}
	for _, weakness := range s.GetWeaknesses() {
		row(w, "Weakness", weakness)
	}
}

// explainVolume always says whether a volume is encrypted.
func explainVolume(kind string, encrypted bool) string {
	switch {
	case kind == "":
		return ""
	case encrypted:
		return kind + ", encrypted"
	default:
		return kind + ", NOT ENCRYPTED"
	}
}

func explainSealer(sealer string) string {
	switch sealer {
	case "tpm2":
		return "sealed by the TPM"
	case "file":
		return "in a file, not sealed by a TPM"
	default:
		return sealer
	}
}

// NodeUnlocked is the document of `reeve node unlock`.
type NodeUnlocked struct {
	NodeID string `json:"node_id"`
	// DryRun says that nothing was changed: the recovery key opens the recovery file, and nothing was sent to the node.
	DryRun bool `json:"dry_run"`
	// WasOpen says that the volume was open already.
	WasOpen bool `json:"was_open"`
	// Recipient is the public half of the recovery key; empty: none was needed.
	Recipient string `json:"recipient"`
	// Up says that the node is Home and its roles are up; false: it was not waited for.
	Up bool `json:"up"`
	// Notes are what remains to be done, a sentence each.
	Notes []string `json:"notes"`
}

func (u NodeUnlocked) table(w io.Writer, _ time.Time) {
	switch {
	case u.DryRun:
		line(w, "The recovery key ", u.Recipient, " opens the recovery file of ", Called(u.NodeID), ". Nothing was changed (--dry-run).")
	case u.WasOpen:
		line(w, "The volume of ", Called(u.NodeID), " is open already.")
	case u.Up:
		line(w, "The volume of ", Called(u.NodeID), " is open, and its roles are up.")
	default:
		line(w, "The volume of ", Called(u.NodeID), " is open.")
	}
	for _, note := range u.Notes {
		line(w, note)
	}
}

// NodeSealed is the document of `reeve node seal`.
type NodeSealed struct {
	NodeID string `json:"node_id"`
	// DryRun says that nothing was changed: it is what would have been done.
	DryRun bool `json:"dry_run"`
	// Roles are those that were stopped, or would be.
	Roles []string `json:"roles"`
}

func (s NodeSealed) table(w io.Writer, _ time.Time) {
	if s.DryRun {
		line(w, "The roles of ", Called(s.NodeID), " (", orNone(s.Roles), ") would be stopped and its volume closed. Nothing was changed (--dry-run).")
		return
	}
	line(w, Called(s.NodeID), " is sealed: its roles are stopped, its keys forgotten, and its volume is closed.")
}

// KeysRotated is the document of `reeve node keys rotate`.
type KeysRotated struct {
	NodeID string `json:"node_id"`
	// DryRun says that nothing was changed: it is what would have been done.
	DryRun bool `json:"dry_run"`
	// Keys are those that are new: "nuk", "cuk", "data-key".
	Keys []string `json:"keys"`
	// Recipient is the public half of another recovery key; empty: it is the same as before.
	Recipient string `json:"recipient"`
}

func (k KeysRotated) table(w io.Writer, _ time.Time) {
	verb, end := "are new", "."
	if k.DryRun {
		verb, end = "would be new", ". Nothing was changed (--dry-run)."
	}
	recovery := ""
	if k.Recipient != "" {
		recovery = "; the recovery key is " + k.Recipient
	}
	line(w, "Keys of ", Called(k.NodeID), " that ", verb, ": ", strings.Join(k.Keys, ", "), recovery, end)
}

// Resealed is the document of `reeve node reseal`.
type Resealed struct {
	NodeID string `json:"node_id"`
	// DryRun says that nothing was changed: it is what would have been done.
	DryRun bool `json:"dry_run"`
	// PCRs are the registers to which the secrets are sealed; none: a file keeps them.
	PCRs []uint32 `json:"pcrs"`
	// Expected are the values that were given for registers, in hex, by their numbers.
	Expected map[string]string `json:"expected"`
}

func (r Resealed) table(w io.Writer, _ time.Time) {
	verb, end := "are", "."
	if r.DryRun {
		verb, end = "would be", ". Nothing was changed (--dry-run)."
	}
	to := "kept anew in a file, without a TPM"
	if len(r.PCRs) > 0 {
		var numbers, given []string
		for _, pcr := range r.PCRs {
			if _, ok := r.Expected[number(pcr)]; ok {
				given = append(given, number(pcr))
			}
			numbers = append(numbers, number(pcr))
		}
		to = "sealed to the TPM and PCR " + strings.Join(numbers, ", ") + " as they are now"
		if len(given) > 0 {
			to = "sealed to the TPM and PCR " + strings.Join(numbers, ", ") + ", with the given values of " + strings.Join(given, ", ")
		}
	}
	line(w, "The secrets of ", Called(r.NodeID), " ", verb, " ", to, end)
}

// Peers is the document of `reeve node peers`.
type Peers struct {
	NodeID string `json:"node_id"`
	// DryRun says that nothing was changed: it is what would have been done.
	DryRun bool `json:"dry_run"`
	// Peers are the machines on which the node looks for others, those of its parameters first.
	Peers []string `json:"peers"`
}

func (p Peers) table(w io.Writer, _ time.Time) {
	verb, end := " looks", "`reeve status` shows whether it finds them."
	if p.DryRun {
		verb, end = " would look", "Nothing was changed (--dry-run)."
	}
	if len(p.Peers) == 0 {
		line(w, Called(p.NodeID), verb, " for other nodes only where it knows them to be. ", end)
		return
	}
	line(w, Called(p.NodeID), verb, " for other nodes on ", strings.Join(p.Peers, ", "), " as well. ", end)
}

// RecoveryKey is the document of `reeve recovery-key new`.
type RecoveryKey struct {
	// File is where the private half is; empty: it is Text.
	File string `json:"file"`
	// Recipient is the public half.
	Recipient string `json:"recipient"`
	// Text is what would be in the file; empty: it is there.
	Text string `json:"text"`
}

func (k RecoveryKey) table(w io.Writer, _ time.Time) {
	if k.File != "" {
		row(w, "Recovery key", k.File)
		row(w, "Public half", k.Recipient)
		return
	}
	_, _ = io.WriteString(w, k.Text)
}

// Called is a node by its ID; one that is not known yet is the local one.
func Called(id string) string {
	if id == "" {
		return "the node"
	}
	return "node " + id
}

// line writes a line for people.
func line(w io.Writer, parts ...string) {
	text := Clean(strings.Join(parts, ""))
	if text != "" {
		text = strings.ToUpper(text[:1]) + text[1:]
	}
	_, _ = io.WriteString(w, text+"\n")
}
