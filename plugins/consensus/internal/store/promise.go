package store

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/reeveproject/reeve/plugins/consensus/internal/steps"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/sdk/checkpoint"
)

// promiseVersion is the version of the format of a Promise.
const promiseVersion = 1

// maxPromise bounds its size in bytes; a real one has about 1000.
const maxPromise = 256 << 10

// recoveryIDLength is the length of the ID of a recovery in bytes.
const recoveryIDLength = 16

// Promise is what a member of a store that has lost its majority has promised: to vote for nobody, so that one survivor can be made the only member. It lies beside the marker.
type Promise struct {
	Version int `json:"version"`
	// ID is that of the recovery, and of the generation that begins with it.
	ID string `json:"id"`
	// Node is where the member is that becomes the only one; empty: it is not chosen yet.
	Node  string       `json:"node,omitempty"`
	Phase PromisePhase `json:"phase"`
	// Member is how the member was when it stopped, as JSON.
	Member json.RawMessage `json:"member,omitempty"`
}

// PromisePhase is how far a recovery has come on a member.
type PromisePhase string

const (
	// Promised: the member is stopped, and the promise may be given up.
	Promised PromisePhase = "promised"
	// Begun: the member is being made the only one.
	Begun PromisePhase = "begun"
	// Forced: it is the only one, and its data says so.
	Forced PromisePhase = "forced"
	// Done: the store serves.
	Done PromisePhase = "done"
)

// promiseMarks are the steps of writing a promise.
var promiseMarks = map[PromisePhase]checkpoint.Step{Promised: steps.PromiseRecovery, Begun: steps.BeginRecovery, Forced: steps.MarkForced, Done: steps.MarkRecovered}

// Open reports whether there is something to be done.
func (p *Promise) Open() bool { return p != nil && p.Phase != Done }

// State is how the member was when it stopped.
func (p *Promise) State() *consensusv1.MemberState {
	state := &consensusv1.MemberState{}
	_ = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(p.Member, state) // parsePromise has checked it
	return state
}

// Keep keeps how the member was when it stopped.
func (p *Promise) Keep(state *consensusv1.MemberState) (err error) {
	p.Member, err = protojson.Marshal(state)
	return err
}

// Message is what others are told of it; nil: nothing was promised.
func (p *Promise) Message() *consensusv1.QuorumRecovery {
	if p == nil {
		return nil
	}
	return &consensusv1.QuorumRecovery{Id: p.ID, NodeId: p.Node, Phase: map[PromisePhase]consensusv1.QuorumRecoveryPhase{
		Promised: consensusv1.QuorumRecoveryPhase_QUORUM_RECOVERY_PHASE_PROMISED,
		Begun:    consensusv1.QuorumRecoveryPhase_QUORUM_RECOVERY_PHASE_BEGUN,
		Forced:   consensusv1.QuorumRecoveryPhase_QUORUM_RECOVERY_PHASE_FORCED,
		Done:     consensusv1.QuorumRecoveryPhase_QUORUM_RECOVERY_PHASE_DONE,
	}[p.Phase]}
}

// CheckRecoveryID says what is wrong with the ID of a recovery.
func CheckRecoveryID(id string) error {
	if content, err := hex.DecodeString(id); err != nil || len(content) != recoveryIDLength || hex.EncodeToString(content) != id {
		return fmt.Errorf("the ID of a recovery is %d hexadecimal digits", 2*recoveryIDLength)
	}
	return nil
}

func promisePath(directory string) string { return filepath.Join(directory, "recovery.json") }

// ReadPromise returns what was promised last; nil: nothing.
func ReadPromise(directory string) (*Promise, error) {
	file, err := os.Open(promisePath(directory))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what the member has promised: %w", err)
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxPromise+1))
	if err != nil {
		return nil, fmt.Errorf("read what the member has promised: %w", err)
	}
	promise, err := parsePromise(content)
	if err != nil {
		return nil, foreign("it cannot be told what the member in %s has promised: %s: %v; put the file back from a backup", directory, promisePath(directory), err)
	}
	return promise, nil
}

func parsePromise(content []byte) (*Promise, error) {
	if len(content) > maxPromise {
		return nil, fmt.Errorf("longer than %d bytes", maxPromise)
	}
	var p Promise
	decoder := json.NewDecoder(bytes.NewReader(content))
	if err := decoder.Decode(&p); err != nil {
		return nil, fmt.Errorf("not a promise: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("not a promise: something follows it")
	}
	if p.Version != promiseVersion {
		return nil, fmt.Errorf("version %d, but this release of the consensus role knows only version %d", p.Version, promiseVersion)
	}
	if err := CheckRecoveryID(p.ID); err != nil {
		return nil, err
	}
	if _, known := promiseMarks[p.Phase]; !known || p.Phase != Promised && p.Node == "" {
		return nil, fmt.Errorf("not a promise: phase %q of node %q", p.Phase, p.Node)
	}
	if len(p.Member) > 0 {
		if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(p.Member, &consensusv1.MemberState{}); err != nil {
			return nil, fmt.Errorf("not a promise: %w", err)
		}
	}
	return &p, nil
}

// Write replaces the promise so that after a crash, of the machine too, either the old or the new one is there.
func (p *Promise) Write(directory string) error {
	p.Version = promiseVersion
	content, err := json.Marshal(p)
	if err != nil {
		return err
	}
	err = checkpoint.Around(promiseMarks[p.Phase], func() error {
		if err := renameio.WriteFile(promisePath(directory), append(content, '\n'), 0o600, renameio.WithTempDir(directory)); err != nil {
			return err
		}
		return syncDirectory(directory)
	})
	if err != nil {
		return fmt.Errorf("keep what the member promises: %w", err)
	}
	return nil
}

// ForgetPromise deletes what was promised.
func ForgetPromise(directory string) error {
	if err := os.Remove(promisePath(directory)); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("delete what the member has promised: %w", err)
	}
	return syncDirectory(directory)
}

// honour does what the member has promised before it may start: nothing, for most.
func (s *Store) honour(ctx context.Context) error {
	promise, err := ReadPromise(s.directory)
	switch {
	case err != nil:
		return err
	case !promise.Open():
		return nil
	case s.marker.Phase != complete: // of a member that is none any more
		return ForgetPromise(s.directory)
	case promise.Phase == Promised:
		return s.abstain(ctx, promise)
	case promise.Phase == Begun:
		return s.force(ctx, promise)
	}
	return nil
}

// abstain waits for what becomes of the recovery that was promised. Meanwhile the member does not run. ErrRemoved: another member is the only one now.
func (s *Store) abstain(ctx context.Context, promise *Promise) error {
	s.peering = newPeering(s)
	state := promise.State()
	s.generation.Store(&Generation{Number: state.GetGeneration(), ID: state.GetGenerationId()})
	reason := fmt.Sprintf("the member is stopped for the recovery %s of the lost majority: run `reeve store recover-quorum` again to go on with it, or with --abandon to give it up", promise.ID)
	for said := ""; ; {
		if reason != said && s.config.Waiting != nil {
			s.config.Waiting(reason)
		}
		said = reason
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(askInterval):
		}
		if s.config.Join == nil || s.config.Place == nil || s.peering.bind(ctx) != nil {
			continue
		}
		request, err := s.request()
		if err != nil {
			return err
		}
		bounded, cancel := context.WithTimeout(ctx, askInterval)
		_, err = s.config.Join(bounded, request)
		cancel()
		switch {
		case errors.Is(err, ErrRemoved):
			return err
		case err == nil:
			reason = fmt.Sprintf("the member is stopped for the recovery %s of the lost majority, but the other members have a majority without it: run `reeve store recover-quorum --abandon`", promise.ID)
		}
	}
}

// fulfil notes that the store serves again, if this member was made the only one.
func (s *Store) fulfil() error {
	promise, err := ReadPromise(s.directory)
	if err != nil || !promise.Open() {
		return err
	}
	promise.Phase = Done
	return promise.Write(s.directory)
}
