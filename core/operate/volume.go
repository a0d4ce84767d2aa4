package operate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/events"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// Volume is what the node's own API does with the volume and its keys.
type Volume struct {
	Keys
	Events events.Recorder
	// Sealing takes the wish to seal; nil while the volume is not open.
	Sealing *Sealing
}

// Keys is the volume and its keys, as *unseal.Room has them.
type Keys interface {
	Status() *event.Value[*clusterv1.StorageStatus]
	RecoveryFile() (*nodev1.GetRecoveryFileResponse, error)
	Unlock(ctx context.Context, request *nodev1.UnlockRequest) (*nodev1.UnlockResponse, error)
	RotateKeys(ctx context.Context, request *nodev1.RotateKeysRequest) (*nodev1.RotateKeysResponse, error)
	Reseal(ctx context.Context, request *nodev1.ResealRequest) (*nodev1.ResealResponse, error)
}

// Seal implements nodeapi.Storage.
func (v Volume) Seal(caller string, request *nodev1.SealRequest) error {
	now, _ := v.Status().Get()
	switch {
	case !now.GetEncrypted():
		return status.Errorf(codes.Unimplemented, "the volume of this node is not encrypted (kind %s), and there is nothing to seal: stop reeved to stop its roles", now.GetKind())
	case v.Sealing == nil:
		return status.Error(codes.FailedPrecondition, "the volume of this node is not open")
	case request.GetDryRun():
		return nil
	}
	return v.Sealing.seal(caller)
}

// RotateKeys implements nodeapi.Storage.
func (v Volume) RotateKeys(ctx context.Context, caller string, request *nodev1.RotateKeysRequest) (*nodev1.RotateKeysResponse, error) {
	answer, err := v.Keys.RotateKeys(ctx, request)
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
	v.Events.Record(&nodev1.Event{
		Type: events.KeysRotated, Severity: nodev1.Severity_SEVERITY_INFO, Message: "other keys protect the volume: " + strings.Join(keys, ", "),
		Details: map[string]string{"caller": caller, "keys": strings.Join(keys, ", ")},
	})
	return answer, nil
}

// Reseal implements nodeapi.Storage.
func (v Volume) Reseal(ctx context.Context, caller string, request *nodev1.ResealRequest) (*nodev1.ResealResponse, error) {
	answer, err := v.Keys.Reseal(ctx, request)
	if err != nil || request.GetDryRun() {
		return answer, err
	}
	registers := strings.Trim(strings.ReplaceAll(fmt.Sprint(answer.GetPcrs()), " ", ", "), "[]")
	v.Events.Record(&nodev1.Event{
		Type: events.Resealed, Severity: nodev1.Severity_SEVERITY_INFO, Message: "the node's secrets were sealed anew",
		Details: map[string]string{"caller": caller, "registers": registers},
	})
	return answer, nil
}

// Opened returns the event of a volume that was opened; nil if it is not encrypted.
func Opened(now *clusterv1.StorageStatus) *nodev1.Event {
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
		Type: events.VolumeOpened, Severity: nodev1.Severity_SEVERITY_INFO, Message: "the volume was opened: " + from,
		Details: map[string]string{"kind": now.GetKind(), "source": source},
	}
}

// SealedBy returns the event of a volume that is about to be sealed. It is recorded before the volume is closed, since the journal is on the volume.
func SealedBy(caller string) *nodev1.Event {
	return &nodev1.Event{
		Type: events.VolumeSealed, Severity: nodev1.Severity_SEVERITY_INFO, Message: "the roles were stopped and the volume is closed, as " + caller + " asked",
		Details: map[string]string{"caller": caller},
	}
}
