package node

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"

	"github.com/reeveproject/reeve/core/events"
	"github.com/reeveproject/reeve/core/hostapi"
	"github.com/reeveproject/reeve/core/identity"
	"github.com/reeveproject/reeve/core/membership"
	"github.com/reeveproject/reeve/core/operate"
	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/roles"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// stuck is an instance that cannot be stopped: its process hangs in the kernel.
type stuck struct {
	remit  *plugin.Remit
	record *clusterv1.PluginRecord
	status event.Value[*rolev1.WatchResponse]
	left   bool
}

var errStuck = errors.New("it hangs in the kernel")

func newStuck(manifest *rolev1.RoleManifest) *stuck {
	s := &stuck{
		remit:  &plugin.Remit{InstanceID: "node/" + manifest.GetName() + "/1", Role: manifest.GetName(), Manifest: manifest, Grants: &clusterv1.RoleGrants{}},
		record: &clusterv1.PluginRecord{Manifest: &rolev1.Manifest{Roles: []*rolev1.RoleManifest{manifest}}},
	}
	s.status.Set(&rolev1.WatchResponse{State: rolev1.RoleState_ROLE_STATE_READY})
	return s
}

func (s *stuck) Remit() *plugin.Remit                             { return s.remit }
func (s *stuck) Process() plugin.Process                          { return plugin.Process{} }
func (s *stuck) Conn() *grpc.ClientConn                           { return nil }
func (s *stuck) Status() *event.Value[*rolev1.WatchResponse]      { return &s.status }
func (s *stuck) CheckHealth(context.Context) error                { return nil }
func (s *stuck) Done() <-chan struct{}                            { return nil }
func (s *stuck) Exit() plugin.Exit                                { return plugin.Exit{} }
func (s *stuck) Stop(context.Context, time.Duration) error        { return errStuck }
func (s *stuck) Spec() plugin.Spec                                { return plugin.Spec{Plugin: s.record} }
func (s *stuck) Launched() time.Time                              { return time.Time{} }
func (s *stuck) KeepState(hostv1.InstanceState, time.Time)        {}
func (s *stuck) KeptState() (_ hostv1.InstanceState, _ time.Time) { return 0, time.Time{} }
func (s *stuck) Leave()                                           { s.left = true }

// openNothing opens no host sockets.
type openNothing struct{}

func (openNothing) Open(*plugin.Remit) (socket string, close func(), err error) {
	return "", func() {}, nil
}

// Roles that are left run on, and the volume stays open, also where one that ends with its core could not be stopped.
func TestRolesAreLeftBesideOneThatIsStuck(t *testing.T) {
	store := newStuck(&rolev1.RoleManifest{Name: "store"})
	shell := newStuck(&rolev1.RoleManifest{Name: "shell", EndsWithCore: true})
	desired := event.New(roles.Desired{Roles: []roles.DesiredRole{
		{Assignment: &clusterv1.RoleAssignment{Role: "store"}, Plugin: store.record}, {Assignment: &clusterv1.RoleAssignment{Role: "shell"}, Plugin: shell.record},
	}})
	log := hclog.NewNullLogger()
	w := &whole{
		log: log, host: &hostapi.Server{}, sealing: operate.NewSealing(),
		reconciler: roles.New(roles.Config{
			Log: log, Hosts: openNothing{}, Desired: desired, Adopted: []roles.Running{store, shell}, Events: new(events.Relay),
			Shortage: func() string { return "" }, Stored: func(string) bool { return true }, Launched: func(string, time.Duration) {},
		}),
		member: membership.New(membership.Config{Log: log, Identity: event.New(&identity.Identity{})}),
	}
	broken := errors.New("a room is broken")
	groupCtx, fail := context.WithCancelCause(t.Context())
	type result struct {
		left bool
		err  error
	}
	ended := make(chan result, 1)
	go func() {
		left, err := w.runRoles(t.Context(), groupCtx)
		ended <- result{left, err}
	}()
	fail(broken)
	if r := <-ended; !r.left || !errors.Is(r.err, errStuck) || !store.left || shell.left {
		t.Errorf("%+v; the store is left: %t, and what ends with the core: %t", r, store.left, shell.left)
	}
}

// instanceOf says which instance of a role runs, and by which process.
func instanceOf(s *nodev1.Status, role string) string {
	for _, i := range s.GetNode().GetInstances() {
		if i.GetRole() == role {
			return fmt.Sprintf("%s, process %d", i.GetInstanceId(), i.GetPid())
		}
	}
	return ""
}
