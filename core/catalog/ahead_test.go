package catalog

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/roles"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// What waits is verified once something runs and nothing is being launched, one after the other, each once.
func TestVerifyAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		instance := func(state hostv1.InstanceState, digest string, process *plugin.Process) roles.Instance {
			return roles.Instance{Status: &clusterv1.InstanceStatus{State: state, Digest: digest}, Process: process}
		}
		const starting, blocked = hostv1.InstanceState_INSTANCE_STATE_STARTING, hostv1.InstanceState_INSTANCE_STATE_BLOCKED
		runs := &plugin.Process{}
		var instances event.Value[roles.Instances]
		var verified []string
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			VerifyAhead(ctx, &instances, func(digest string) { verified = append(verified, digest) })
		}()
		for _, step := range []struct {
			what string
			now  roles.Instances
			want []string
		}{
			{"nothing runs", roles.Instances{instance(blocked, "b", nil)}, nil},
			{"the first is launched", roles.Instances{instance(starting, "a", nil), instance(blocked, "b", nil)}, nil},
			{"the first is being started", roles.Instances{instance(starting, "a", runs), instance(blocked, "b", nil), instance(blocked, "", nil), instance(blocked, "c", nil)}, []string{"b", "c"}},
			{"again", roles.Instances{instance(starting, "a", runs), instance(blocked, "b", nil), instance(blocked, "c", nil)}, []string{"b", "c"}},
			{"another is launched", roles.Instances{instance(starting, "a", runs), instance(starting, "b", nil), instance(blocked, "d", nil)}, []string{"b", "c"}},
		} {
			instances.Set(step.now)
			synctest.Wait()
			if !slices.Equal(verified, step.want) {
				t.Errorf("%s: verified %q, want %q", step.what, verified, step.want)
			}
		}
		cancel()
		<-done
	})
}
