package catalog

import (
	"context"
	"slices"

	"github.com/reeveproject/reeve/core/roles"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// VerifyAhead reads and verifies the executables of roles that wait for another role or for the cluster, until the context ends. Their start then only has to
// launch them. Executables may be large, and are not in memory where the volume was just opened. VerifyAhead calls verify once for each executable, one after the other.
func VerifyAhead(ctx context.Context, published *event.Value[roles.Instances], verify func(digest string)) {
	instances := published.Watch()
	asked := make(map[string]bool)
	for {
		now, err := instances.Next(ctx)
		if err != nil {
			return
		}
		if digest := nextAhead(now, asked); digest != "" {
			asked[digest] = true
			verify(digest)
			// The next one is looked for among the instances of that moment.
			instances = published.Watch()
		}
	}
}

// nextAhead returns the executable to verify now; "" if there is none. It returns none before something was launched, nor while something is being launched:
// that is what the others wait for, and verifying would slow it down.
func nextAhead(now roles.Instances, asked map[string]bool) string {
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
