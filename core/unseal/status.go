package unseal

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/seal"
	"github.com/reeveproject/reeve/core/seal/recovery"
	"github.com/reeveproject/reeve/core/storage/volume"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// The sources of the CUK.
const (
	sourceRecovery = "recovery"
	sourceTPM      = "tpm"
	sourceCluster  = "cluster"
)

// The states, by shorter names.
const (
	making  = clusterv1.StorageState_STORAGE_STATE_MAKING
	locked  = clusterv1.StorageState_STORAGE_STATE_LOCKED
	opening = clusterv1.StorageState_STORAGE_STATE_OPENING
	isOpen  = clusterv1.StorageState_STORAGE_STATE_OPEN
	closing = clusterv1.StorageState_STORAGE_STATE_CLOSING
	sealed  = clusterv1.StorageState_STORAGE_STATE_SEALED

	idle    = clusterv1.CukSourceState_CUK_SOURCE_STATE_IDLE
	waiting = clusterv1.CukSourceState_CUK_SOURCE_STATE_WAITING
	used    = clusterv1.CukSourceState_CUK_SOURCE_STATE_USED
	failed  = clusterv1.CukSourceState_CUK_SOURCE_STATE_FAILED
	off     = clusterv1.CukSourceState_CUK_SOURCE_STATE_OFF
)

// board is where the room publishes its status. Each status that is set is a message of its own, since readers share it.
type board struct {
	mu     sync.Mutex
	status event.Value[*clusterv1.StorageStatus]
}

func (b *board) begin(d volume.Description, sealer string, fresh bool) {
	s := &clusterv1.StorageStatus{State: locked, Kind: string(d.Kind), Encrypted: d.Encrypted, Location: d.Location, Sealer: sealer}
	if fresh {
		s.State = making
	}
	if d.KeySize > 0 {
		s.Sources = []*clusterv1.CukSource{{Name: sourceRecovery, State: idle}, {Name: sourceTPM, State: off, Reason: "`seal` in the parameters names no TPM"}}
		if sealer == "tpm2" {
			s.Sources[1] = &clusterv1.CukSource{Name: sourceTPM, State: idle}
		}
	}
	b.status.Set(s)
}

func (b *board) update(change func(*clusterv1.StorageStatus)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before, _ := b.status.Get()
	next := proto.Clone(before).(*clusterv1.StorageStatus)
	change(next)
	if !proto.Equal(before, next) {
		b.status.Set(next)
	}
}

// state sets the state, and the problem that goes with it.
func (b *board) state(state clusterv1.StorageState, problem string) {
	b.update(func(s *clusterv1.StorageStatus) { s.State, s.Problem = state, problem })
}

func (b *board) problem(err error) {
	b.update(func(s *clusterv1.StorageStatus) { s.Problem = err.Error() })
}

// withCluster adds the source that only a node has of which the cluster holds the other half of the key.
func (b *board) withCluster() {
	b.update(func(s *clusterv1.StorageStatus) {
		if !slices.ContainsFunc(s.GetSources(), func(source *clusterv1.CukSource) bool { return source.GetName() == sourceCluster }) {
			s.Sources = append(s.Sources, &clusterv1.CukSource{Name: sourceCluster, State: idle})
		}
	})
}

func (b *board) now() clusterv1.StorageState {
	s, _ := b.status.Get()
	return s.GetState()
}

func (b *board) source(name string, state clusterv1.CukSourceState, reason string) {
	b.update(func(s *clusterv1.StorageStatus) {
		for _, source := range s.GetSources() {
			if source.GetName() == name {
				source.State, source.Reason = state, reason
			}
		}
	})
}

// settle says which source gave the key, and that nobody asks the others any more.
func (b *board) settle(from string) {
	b.update(func(s *clusterv1.StorageStatus) {
		for _, source := range s.GetSources() {
			switch {
			case source.GetName() == from:
				source.State, source.Reason = used, ""
			case source.GetState() == waiting:
				source.State, source.Reason = idle, ""
			}
		}
	})
}

// refresh finds out anew what is weaker than it could be. It reads the recovery file, which may have been damaged or lost at any time.
func (r *Room) refresh() {
	description := r.kind.Describe()
	var weaknesses []string
	recoverable := false
	_, recipient, err := recovery.Read(r.config.Storage.Recovery())
	if err == nil {
		err = recovery.Check(r.config.Storage.Recovery())
	}
	switch {
	case description.KeySize == 0:
	case err == nil && r.configuration != nil && recipient != r.configuration.RecoveryRecipient && r.configuration.RecoveryRecipient != "":
		recoverable = true
		weaknesses = append(weaknesses, "The recovery file "+r.config.Storage.Recovery()+" is still for the former recovery key "+recipient+": say `reeve node keys rotate`.")
	case err == nil:
		recoverable = true
	case r.open || r.configuration != nil && !r.beingMade():
		weaknesses = append(weaknesses, "There is no recovery file that can be used ("+strings.TrimSpace(err.Error())+"): without a copy of it, nothing opens the volume if the machine or its TPM changes. `reeve node keys rotate` writes it anew.")
	}
	if !description.Encrypted {
		weaknesses = append(weaknesses, "The volume is not encrypted: whoever has the disk reads all of it.")
	}
	if r.parts.tpm == nil {
		weaknesses = append(weaknesses, "Only the permissions of a file protect the node's secrets: whoever has the disk has the node's key"+map[bool]string{true: " and its half of the volume's key"}[description.KeySize > 0]+".")
	}
	if r.configuration != nil && description.KeySize > 0 {
		weaknesses = append(weaknesses, r.weakSources()...)
		var unreadable *keys.UnreadableError
		if !r.beingMade() && errors.As(r.wrapped.Check(), &unreadable) {
			weaknesses = append(weaknesses, fmt.Sprintf("The wrapped data key %s cannot be read (%v): only the owner's recovery key opens the volume once it is closed. `reeve node seal` and `reeve node unlock` write the file anew.", unreadable.Path, unreadable.Err))
		}
		if r.configuration.NextNUK != nil {
			weaknesses = append(weaknesses, "A rotation of keys was interrupted: it is finished at the next start that gets the key from a source, or by `reeve node keys rotate`.")
		}
	}
	r.board.update(func(s *clusterv1.StorageStatus) {
		s.Weaknesses, s.Recoverable, s.Location = weaknesses, recoverable, description.Location
	})
}

func (r *Room) beforeMember() bool { return r.configuration.Phase.Before(seal.Member) }

func (r *Room) beingMade() bool { return r.configuration.Phase.Before(seal.Forming) }

// weakSources says what it means that the source tpm gives nothing. Why that is so stands at the source itself.
func (r *Room) weakSources() []string {
	const waits = "After a restart of the machine the node waits for its owner (`reeve node unlock`): no other source gives its key."
	switch {
	case r.configuration.Registration != nil && !r.configuration.Phase.Before(seal.Registering) && (r.beforeMember() || allows(r.configuration.CUKSources, sourceCluster)):
		// The cluster gives it, or the sealed configuration as long as the cluster does not have it.
		return nil
	case r.parts.tpm == nil && !r.open:
		// It waits for the owner already, and says so.
		return nil
	case r.parts.tpm == nil:
		return []string{waits}
	case !allows(r.configuration.CUKSources, sourceTPM):
		r.board.source(sourceTPM, off, notAllowed)
		return []string{waits}
	case !there(r.config.Storage.CUK()) && !r.beingMade():
		reason := "the TPM does not have the key"
		if r.open && r.cuk == nil {
			reason += ": the key is not known before the volume is opened anew (`reeve node seal`, `reeve node unlock`)"
		}
		if r.open {
			r.board.source(sourceTPM, off, reason)
		}
		return []string{waits}
	}
	return nil
}

// notAllowed is why the source tpm is off.
const notAllowed = "the cluster's policy does not allow it, or was not heard since the node's files were recovered"

// allows says whether a policy allows a source. The owner is never locked out.
func allows(policy []string, source string) bool {
	return len(policy) == 0 || source == sourceRecovery || slices.Contains(policy, source)
}
