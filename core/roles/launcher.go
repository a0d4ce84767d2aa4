package roles

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/reeveproject/reeve/core/plugin"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// Launcher makes instances. FromPlugin makes one of a *plugin.Launcher, whose methods say what is expected here.
type Launcher interface {
	Prepare(ctx context.Context, spec plugin.Spec) (*plugin.Remit, error)
	Discard(remit *plugin.Remit) error
	Launch(ctx context.Context, remit *plugin.Remit, spec plugin.Spec, hostSocket string) (Running, error)
}

// Running is an instance that was launched, as *plugin.Instance is one.
type Running interface {
	Remit() *plugin.Remit
	Process() plugin.Process
	Conn() *grpc.ClientConn
	Status() *event.Value[*rolev1.WatchResponse]
	CheckHealth(ctx context.Context) error
	Done() <-chan struct{}
	Exit() plugin.Exit
	Stop(ctx context.Context, grace time.Duration) error
	// Spec and Launched are what it was launched for, and when.
	Spec() plugin.Spec
	Launched() time.Time
	// KeepState keeps for the next core which state is shown of it since when, and KeptState returns what was kept.
	KeepState(state hostv1.InstanceState, since time.Time)
	KeptState() (state hostv1.InstanceState, since time.Time)
	// Leave lets go of it without ending it.
	Leave()
}

var _ Running = (*plugin.Instance)(nil)

// HostSockets serves reeve.host.v1 to instances.
type HostSockets interface {
	// Open serves a prepared instance, and returns where. close ends it; it is called once, when the instance has ended.
	Open(remit *plugin.Remit) (socket string, close func(), err error)
}

// FromPlugin is the launcher of real instances.
func FromPlugin(l *plugin.Launcher) Launcher { return pluginLauncher{l} }

type pluginLauncher struct{ *plugin.Launcher }

func (l pluginLauncher) Launch(ctx context.Context, remit *plugin.Remit, spec plugin.Spec, hostSocket string) (Running, error) {
	instance, err := l.Launcher.Launch(ctx, remit, spec, hostSocket)
	if err != nil {
		return nil, err // and no interface that holds a nil pointer
	}
	return instance, nil
}
