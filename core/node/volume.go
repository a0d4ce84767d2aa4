package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/cluster"
	"github.com/reeveproject/reeve/core/events"
	"github.com/reeveproject/reeve/core/storage/volume"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// The types of the events of a volume that is encrypted.
const (
	// VolumeOpened: the volume was opened. Details: kind, source.
	VolumeOpened = "VolumeOpened"
	// VolumeSealed: the roles have been stopped, and the volume is being closed. Details: caller.
	VolumeSealed = "VolumeSealed"
	// KeysRotated: other keys protect the volume. Details: caller, keys.
	KeysRotated = "KeysRotated"
	// Resealed: the node's secrets were sealed anew. Details: caller, registers.
	Resealed = "Resealed"
)

// volumeCalls is what the node's own API does with the volume and its keys.
type volumeCalls struct {
	room   storageRoom
	events events.Recorder
	// sealing takes the wish to seal; nil while the volume is not open.
	sealing *sealing
}

// RecoveryFile implements nodeapi.Storage.
func (c *volumeCalls) RecoveryFile() (*nodev1.GetRecoveryFileResponse, error) {
	return c.room.RecoveryFile()
}

// Unlock implements nodeapi.Storage.
func (c *volumeCalls) Unlock(ctx context.Context, request *nodev1.UnlockRequest) (*nodev1.UnlockResponse, error) {
	return c.room.Unlock(ctx, request)
}

// Seal implements nodeapi.Storage.
func (c *volumeCalls) Seal(caller string, request *nodev1.SealRequest) error {
	now, _ := c.room.Status().Get()
	switch {
	case !now.GetEncrypted():
		return status.Errorf(codes.Unimplemented, "the volume of this node is not encrypted (kind %s), and there is nothing to seal: stop reeved to stop its roles", now.GetKind())
	case c.sealing == nil:
		return status.Error(codes.FailedPrecondition, "the volume of this node is not open")
	case request.GetDryRun():
		return nil
	}
	return c.sealing.seal(caller)
}

// RotateKeys implements nodeapi.Storage.
func (c *volumeCalls) RotateKeys(ctx context.Context, caller string, request *nodev1.RotateKeysRequest) (*nodev1.RotateKeysResponse, error) {
	answer, err := c.room.RotateKeys(ctx, request)
	if err != nil || request.GetDryRun() {
		return answer, err
	}
	var keys []string
	for _, key := range []struct {
		name    string
		rotated bool
	}{{"NUK", request.GetNuk()}, {"CUK", request.GetCuk()}, {"data key", request.GetDataKey()}, {"recovery key", request.GetRecoveryRecipient() != ""}} {
		if key.rotated {
			keys = append(keys, key.name)
		}
	}
	if !request.GetNuk() && !request.GetCuk() && !request.GetDataKey() {
		keys = append([]string{"NUK", "CUK"}, keys...)
	}
	c.events.Record(&nodev1.Event{
		Type: KeysRotated, Severity: nodev1.Severity_SEVERITY_INFO, Message: "other keys protect the volume: " + strings.Join(keys, ", "),
		Details: map[string]string{"caller": caller, "keys": strings.Join(keys, ", ")},
	})
	return answer, nil
}

// Reseal implements nodeapi.Storage.
func (c *volumeCalls) Reseal(ctx context.Context, caller string, request *nodev1.ResealRequest) (*nodev1.ResealResponse, error) {
	answer, err := c.room.Reseal(ctx, request)
	if err != nil || request.GetDryRun() {
		return answer, err
	}
	registers := strings.Trim(strings.ReplaceAll(fmt.Sprint(answer.GetPcrs()), " ", ", "), "[]")
	c.events.Record(&nodev1.Event{
		Type: Resealed, Severity: nodev1.Severity_SEVERITY_INFO, Message: "the node's secrets were sealed anew",
		Details: map[string]string{"caller": caller, "registers": registers},
	})
	return answer, nil
}

// sealing is the wish to have the node sealed, from the call that has it to the answer.
type sealing struct {
	// asked ends when somebody has asked for it.
	asked context.Context
	ask   context.CancelFunc
	done  chan struct{}

	mu sync.Mutex
	// caller is who asked first, and result the answer, once done is closed.
	caller string
	result error
}

func newSealing() *sealing {
	s := &sealing{done: make(chan struct{})}
	s.asked, s.ask = context.WithCancel(context.Background())
	return s
}

// seal asks for it and returns the answer. Who comes later has the same.
func (s *sealing) seal(caller string) error {
	s.mu.Lock()
	if s.caller == "" {
		s.caller = caller
	}
	s.mu.Unlock()
	s.ask()
	<-s.done
	return s.result
}

// by is who asked for it.
func (s *sealing) by() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.caller
}

// answer is called once, when the volume is closed, or is not going to be by this core.
func (s *sealing) answer(err error) {
	var busy *volume.BusyError
	switch {
	case errors.As(err, &busy):
		err = status.Errorf(codes.FailedPrecondition, "the roles are stopped, and the volume is closed as soon as nothing uses it any more: %v", err)
	case err != nil:
		err = status.Errorf(codes.Internal, "the node could not be sealed: %v", err)
	}
	s.result = err
	close(s.done)
}

// errNotSealed answers those who asked when the node was stopping already.
var errNotSealed = status.Error(codes.Unavailable, "the core of this node is stopping, which closes its volume")

// opening is the event of an open volume; nil for one that is not encrypted.
func opening(now *clusterv1.StorageStatus) *nodev1.Event {
	if !now.GetEncrypted() {
		return nil
	}
	source, from := "none", "no source had to be asked for its key"
	at := slices.IndexFunc(now.GetSources(), func(s *clusterv1.CukSource) bool {
		return s.GetState() == clusterv1.CukSourceState_CUK_SOURCE_STATE_USED
	})
	if at >= 0 {
		source = now.GetSources()[at].GetName()
		from = "the cluster's half of its key (CUK) came from the source " + source
	}
	return &nodev1.Event{
		Type: VolumeOpened, Severity: nodev1.Severity_SEVERITY_INFO, Message: "the volume was opened: " + from,
		Details: map[string]string{"kind": now.GetKind(), "source": source},
	}
}

// sealedBy is the event of a volume that is about to be closed. It is recorded while it can be: the journal is on the volume.
func sealedBy(caller string) *nodev1.Event {
	return &nodev1.Event{
		Type: VolumeSealed, Severity: nodev1.Severity_SEVERITY_INFO, Message: "the roles were stopped and the volume is closed, as " + caller + " asked",
		Details: map[string]string{"caller": caller},
	}
}

// allowAgain is how long the node waits before it tries again to take over what the policy allows.
const allowAgain = 5 * time.Second

// followPolicy has the sources of the CUK allowed that the cluster's policy allows.
func followPolicy(ctx context.Context, log hclog.Logger, view *event.Value[*cluster.View], allow func(context.Context, []string) error) error {
	views := view.Watch()
	var last []string
	taken := false
	for {
		var again <-chan time.Time
		now := latest(views)
		// A curator that is older than the policy says nothing of it.
		if now != nil && now.Policy != nil && (!taken || !slices.Equal(last, now.Policy.GetCukSources())) {
			sources := now.Policy.GetCukSources()
			if err := allow(ctx, sources); err == nil {
				last, taken = sources, true
			} else if ctx.Err() == nil {
				log.Error("what the cluster's policy says of the sources of the CUK is not in force on this node yet", "sources", sources, "error", err, "again", allowAgain)
				again = time.After(allowAgain)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-views.Changed():
		case <-again:
		}
	}
}
