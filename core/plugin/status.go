package plugin

import (
	"context"
	"fmt"
	"time"

	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// What a role may state, as reeve.role.v1 says.
const (
	maxReason        = 512
	maxEndpoints     = 32
	maxEndpoint      = 512
	maxPublished     = 32
	maxPublishedSize = 4096
)

const (
	// silence is how long the status stream of a live process may be broken before the role counts as failed. It breaks when the role
	// closes it, which no role has reason to.
	silence = 5 * time.Second
	// watchPause is how long the core waits before it asks for the stream again.
	watchPause = 100 * time.Millisecond
)

// watch follows the role's status until the process ends or the role has failed.
func (i *Instance) watch(life context.Context) {
	client := rolev1.NewRoleServiceClient(i.session.conn)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stop := context.AfterFunc(life, cancel)
	defer stop()
	broken := time.Now()
	for ctx.Err() == nil {
		heard, err := i.receive(ctx, client)
		if heard {
			broken = time.Now()
		}
		if ctx.Err() != nil || i.failed() {
			return
		}
		if time.Since(broken) > silence {
			i.status.Set(i.statusWith(rolev1.RoleState_ROLE_STATE_FAILED,
				fmt.Sprintf("it does not state its status any more (%s)", clean(cut(err.Error(), maxReason)))))
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(watchPause):
		}
	}
}

func (i *Instance) failed() bool {
	status, _ := i.status.Get()
	return status.GetState() == rolev1.RoleState_ROLE_STATE_FAILED
}

// receive publishes what one stream brings, and says whether it brought anything. Its error is never nil.
func (i *Instance) receive(ctx context.Context, client rolev1.RoleServiceClient) (heard bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := client.Watch(ctx, &rolev1.WatchRequest{}, bounded())
	if err != nil {
		return false, err
	}
	for {
		status, err := stream.Recv()
		if err != nil {
			return heard, err
		}
		heard = true
		if err := i.check(status); err != nil {
			i.status.Set(i.statusWith(rolev1.RoleState_ROLE_STATE_FAILED, "it breaks the role protocol: "+err.Error()))
			return heard, err
		}
		i.status.Set(status)
	}
}

// check refuses a status that the protocol does not allow, and makes its texts fit for people.
func (i *Instance) check(status *rolev1.WatchResponse) error {
	remit := i.session.remit
	if status.GetInstanceId() != remit.InstanceID || status.GetRole() != remit.Role || status.GetConfigurationGeneration() != i.generation {
		return fmt.Errorf("its status is not that of instance %s, generation %d", remit.InstanceID, i.generation)
	}
	if _, known := rolev1.RoleState_name[int32(status.GetState())]; !known || status.GetState() == rolev1.RoleState_ROLE_STATE_UNSPECIFIED {
		return fmt.Errorf("state %d is unknown", status.GetState())
	}
	status.Reason = clean(cut(status.GetReason(), maxReason))
	if len(status.GetEndpoints()) > maxEndpoints {
		return fmt.Errorf("%d endpoints; at most %d", len(status.GetEndpoints()), maxEndpoints)
	}
	for _, endpoint := range status.GetEndpoints() {
		if endpoint == nil || endpoint.GetName() == "" || len(endpoint.GetName()) > maxName || len(endpoint.GetAddress()) > maxEndpoint {
			return fmt.Errorf("endpoint %q: want a name of 1 to %d bytes and an address of at most %d", clean(cut(endpoint.GetName(), maxName)), maxName, maxEndpoint)
		}
		endpoint.Name, endpoint.Address = clean(endpoint.GetName()), clean(endpoint.GetAddress())
	}
	if len(status.GetValues()) > maxPublished {
		return fmt.Errorf("%d values; at most %d", len(status.GetValues()), maxPublished)
	}
	for name, value := range status.GetValues() {
		if name == "" || len(name) > maxName || clean(name) != name || len(value) > maxPublishedSize {
			return fmt.Errorf("value %q: want a name of 1 to %d printable bytes and a value of at most %d", clean(cut(name, maxName)), maxName, maxPublishedSize)
		}
	}
	return nil
}

func (i *Instance) statusWith(state rolev1.RoleState, reason string) *rolev1.WatchResponse {
	return &rolev1.WatchResponse{
		InstanceId:              i.session.remit.InstanceID,
		Role:                    i.session.remit.Role,
		ConfigurationGeneration: i.generation,
		State:                   state,
		Reason:                  reason,
	}
}
