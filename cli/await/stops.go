package await

import (
	"context"
	"sync"
	"time"

	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// LongStops is by how much longer than usual it may take until all roles have stopped that run on a node, one after another: as long as their manifests say that they need, beyond what
// every role has.
func LongStops(instances []*clusterv1.InstanceStatus) (more time.Duration) {
	for _, instance := range instances {
		if instance.GetPid() != 0 {
			more += longStop(instance)
		}
	}
	return more
}

func longStop(instance *clusterv1.InstanceStatus) time.Duration {
	return max(limits.StopGraceOf(instance.GetStopGrace())-limits.StopGrace, 0)
}

// Limit bounds a wait: it ends when its time is up, which is the longer by what those roles need beyond what is usual that were seen to be stopped meanwhile.
type Limit struct {
	began time.Time
	most  time.Duration
	timer *time.Timer

	mu      sync.Mutex
	stopped map[string]bool // by instance
}

// NewLimit begins a limit. The context ends when the time is up, with the cause context.DeadlineExceeded.
func NewLimit(ctx context.Context, most time.Duration) (context.Context, *Limit, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	l := &Limit{began: time.Now(), most: most, stopped: make(map[string]bool)}
	l.timer = time.AfterFunc(most, func() { cancel(context.DeadlineExceeded) })
	return ctx, l, func() {
		l.timer.Stop()
		cancel(nil)
	}
}

// Of has the limit know what a source says.
func (l *Limit) Of(source Source) Source {
	return func(ctx context.Context, see func(Seen), lost func(error)) error {
		return source(ctx, func(seen Seen) {
			l.see(seen.Status.GetNode().GetInstances())
			l.see(seen.Node.GetStatus().GetInstances())
			see(seen)
		}, lost)
	}
}

func (l *Limit) see(instances []*clusterv1.InstanceStatus) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.most
	for _, instance := range instances {
		if id := instance.GetInstanceId(); instance.GetState() == hostv1.InstanceState_INSTANCE_STATE_STOPPING && !l.stopped[id] {
			l.stopped[id] = true
			l.most += longStop(instance)
		}
	}
	if l.most > before {
		l.timer.Reset(time.Until(l.began.Add(l.most)))
	}
}
