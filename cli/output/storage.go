package output

import (
	"io"
	"strings"
	"time"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// Storage is the state of a node's volume and of what keeps its keys.
type Storage struct {
	// State is "Making", "Locked", "Opening", "Open", "Closing" or "Sealed".
	State string `json:"state"`
	// Kind is "fscrypt", "luks" or "plain".
	Kind      string `json:"kind"`
	Encrypted bool   `json:"encrypted"`
	// Location is where the volume is: a device, the file of an image, a directory.
	Location string `json:"location"`
	// Sealer is "file" or "tpm2".
	Sealer string `json:"sealer"`
	// Sources are those of the cluster's half of the key; none for a volume that is not encrypted.
	Sources []CUKSource `json:"sources"`
	// Step is the one of the start-up that is being taken; empty: none.
	Step string `json:"step"`
	// Problem is what keeps the volume from being opened, and the way out; empty: nothing does.
	Problem string `json:"problem"`
	// Weaknesses are what is weaker than it could be, a sentence each.
	Weaknesses []string `json:"weaknesses"`
	// Recoverable says whether the owner's recovery key would open the volume.
	Recoverable bool `json:"recoverable"`
}

// CUKSource is one way by which a node may get the cluster's half of the key of its volume (CUK).
type CUKSource struct {
	Name string `json:"name"`
	// State is "Idle", "Waiting", "Used", "Failed" or "Off".
	State string `json:"state"`
	// Reason is what it waits for, what went wrong, or why it may not be used.
	Reason string `json:"reason"`
}

// NewStorage makes the document of a node's volume; nil for nil.
func NewStorage(s *clusterv1.StorageStatus) *Storage {
	if s == nil {
		return nil
	}
	storage := &Storage{
		State: State(s.GetState()), Kind: s.GetKind(), Encrypted: s.GetEncrypted(), Location: s.GetLocation(), Sealer: s.GetSealer(), Sources: []CUKSource{},
		Step: s.GetStep(), Problem: s.GetProblem(), Weaknesses: list(s.GetWeaknesses()), Recoverable: s.GetRecoverable(),
	}
	for _, source := range s.GetSources() {
		storage.Sources = append(storage.Sources, CUKSource{Name: source.GetName(), State: State(source.GetState()), Reason: source.GetReason()})
	}
	return storage
}

// Closed says in a sentence why nothing runs on the node, and what to do; empty: the volume is open, or the node does not say.
func (s *Storage) Closed() string {
	if s == nil || s.State == "Open" || s.State == "" {
		return ""
	}
	text := "the volume is " + s.State
	switch {
	case s.Problem != "":
		text += ": " + s.Problem
	case s.State == "Sealed":
		text += ": somebody asked for it, and `reeve node unlock` opens it"
	case s.State == "Locked" && len(s.waiting()) > 0:
		text += ": " + strings.Join(s.waiting(), "; ")
		if s.Recoverable {
			text += " (`reeve node unlock`)"
		}
	case s.Step != "":
		text += ": " + s.Step
	}
	return text
}

// waiting is what the sources wait for that may still bring the key.
func (s *Storage) waiting() []string {
	var texts []string
	for _, source := range s.Sources {
		if source.State == "Waiting" {
			texts = append(texts, source.Name+" waits: "+source.Reason)
		}
	}
	return texts
}

// rows write what there is to say of a volume. kind is what a node says that says no more.
func (s *Storage) rows(w io.Writer, kind string) {
	if s == nil {
		row(w, "Volume", explainVolume(kind, kind != "plain"))
		return
	}
	volume := explainVolume(s.Kind, s.Encrypted) + ": " + s.State
	if s.Location != "" {
		volume += ", " + s.Location
	}
	row(w, "Volume", volume)
	row(w, "Secrets", explainSealer(s.Sealer))
	for _, source := range s.Sources {
		text := source.Name + ": " + source.State
		if source.Reason != "" && (source.State != "Failed" || !strings.Contains(s.Problem, source.Reason)) { // the problem has a line of its own below
			text += ": " + source.Reason
		}
		row(w, "Key source", text)
	}
	if s.Encrypted {
		recovery := "the owner's recovery key opens it"
		if !s.Recoverable {
			recovery = "NOT RECOVERABLE: no recovery key opens it"
		}
		row(w, "Recovery", recovery)
	}
	if s.Step != "" {
		row(w, "Step", s.Step)
	}
	if s.Problem != "" {
		row(w, "Problem", s.Problem)
	}
	for _, weakness := range s.Weaknesses {
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
	// Notes are what remains to be done, a sentence each.
	Notes []string `json:"notes"`
}

func (u NodeUnlocked) table(w io.Writer, _ time.Time) {
	switch {
	case u.DryRun:
		line(w, "The recovery key ", u.Recipient, " opens the recovery file of ", Called(u.NodeID), ". Nothing was changed (--dry-run).")
	case u.WasOpen:
		line(w, "The volume of ", Called(u.NodeID), " is open already.")
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
