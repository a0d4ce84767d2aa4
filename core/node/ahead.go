package node

import (
	"context"
	"slices"

	"github.com/reeveproject/reeve/core/roles"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// ahead has the executables of roles that wait for another one, or for the cluster, read and verified while they wait: then only the launch is left of their
// start. They may be large, and are read from the disk where the volume was just opened.
type ahead struct {
	instances *event.Value[roles.Instances]
	// verify is called once for each executable, one after the other.
	verify func(digest string)
}

func (a ahead) run(ctx context.Context) error {
	instances := a.instances.Watch()
	asked := make(map[string]bool)
	for {
		now, err := instances.Next(ctx)
		if err != nil {
			return nil
		}
		if digest := next(now, asked); digest != "" {
			asked[digest] = true
			a.verify(digest)
			// The next one is looked for in what there is by then.
			instances = a.instances.Watch()
		}
	}
}

// next returns the executable that is to be verified now; "" if there is none. What is being launched is waited for, and so is what the others wait for: they
// are not to be slowed down by it.
func next(now roles.Instances, asked map[string]bool) string {
	launched := false
	for _, instance := range now {
		switch {
		case instance.Process != nil:
			launched = true
		case instance.Status.GetState() == hostv1.InstanceState_INSTANCE_STATE_STARTING:
			return ""
		}
	}
	if !launched {
		return ""
	}
	at := slices.IndexFunc(now, func(i roles.Instance) bool {
		digest := i.Status.GetDigest()
		return i.Process == nil && i.Status.GetState() == hostv1.InstanceState_INSTANCE_STATE_BLOCKED && digest != "" && !asked[digest]
	})
	if at < 0 {
		return ""
	}
	return now[at].Status.GetDigest()
}
