package e2e

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/soak"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// notTooSoon is long enough for roles to answer that have to wait for a processor on a busy machine.
const notTooSoon = 15 * time.Second

// setLiveness has a role be ended that does not answer within a time.
func setLiveness(p *nodev1.Parameters, timeout time.Duration) {
	p.Supervision = &nodev1.Supervision{Liveness: &nodev1.Liveness{Interval: durationpb.New(500 * time.Millisecond), Timeout: durationpb.New(timeout)}}
}

// TestStoppedRole stops each role without ending it: it is found, ended and started again, and the others do not notice.
func TestStoppedRole(t *testing.T) {
	t.Parallel()
	asAnyUser(t, func(t *testing.T, c *devcluster.Cluster) {
		c.WriteParameters(t, func(p *nodev1.Parameters) { setLiveness(p, notTooSoon) })
		c.Up(t)
		addLighthouse(t, c)
		before := c.AwaitUp(t, patience, withLighthouse...)
		victims := withLighthouse
		if !soak.Enabled {
			victims = victims[:1]
		}
		for _, victim := range victims {
			c.Signal(t, before.Role(victim).PID, unix.SIGSTOP)
			after := c.Await(t, patience, "another process of "+victim+", everything Ready and the node Home", func(s devcluster.Status) bool {
				return s.Up(withLighthouse...) && s.Role(victim).PID != before.Role(victim).PID
			})
			for _, role := range withLighthouse {
				if role != victim && before.Role(role).PID != after.Role(role).PID {
					t.Errorf("%s was stopped, and %s has process %d after %d", victim, role, after.Role(role).PID, before.Role(role).PID)
				}
			}
			before = after
		}
	})
}
