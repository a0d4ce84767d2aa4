package roletest

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/sdk/internal/inside"
	"github.com/reeveproject/reeve/sdk/role"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// AwaitEndpoint waits until the directory of an instance has an endpoint of a role on a host's node. It fails the test if that does not happen.
func AwaitEndpoint(t testing.TB, instance *role.Host, on *Host, name, endpoint string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := instance.Directory().Wait(ctx, func(now *hostv1.Directory) bool {
		for _, node := range now.GetNodes() {
			for _, candidate := range node.GetRoles() {
				if node.GetNodeId() == on.nodeID && candidate.GetRole() == name &&
					slices.ContainsFunc(candidate.GetEndpoints(), func(e *rolev1.Endpoint) bool { return e.GetName() == endpoint }) {
					return true
				}
			}
		}
		return false
	}); err != nil {
		t.Fatalf("role %s on %s does not serve the endpoint %s", name, on.nodeID, endpoint)
	}
}

// Instance returns an instance of a role that runs in the test itself, without a plugin, until the test ends: the Host for its Run. It is for tests
// of two instances, one of which may be a Process. An instance is Starting until it calls Ready.
func (h *Host) Instance(t testing.TB, name string) *role.Host {
	t.Helper()
	own := directory(t, "/tmp")
	request := &rolev1.StartRequest{
		InstanceId: h.nodeID + "/" + name + "/1", Role: name, NodeId: h.nodeID, ConfigurationGeneration: 1,
		HostSocket: h.socketOf(t, name), DataDirectory: filepath.Join(own, "data"), RuntimeDirectory: filepath.Join(own, "run"),
		CoreUid: uint32(os.Getuid()), Grants: h.granting(), LaterStates: h.states(),
	}
	for _, path := range []string{request.GetDataDirectory(), request.GetRuntimeDirectory()} {
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	log := hclog.New(&hclog.LoggerOptions{Name: name, Level: hclog.Debug, Output: t.Output()})
	made, status, end, err := inside.NewHost(request, log)
	if err != nil {
		t.Fatal(err)
	}
	h.assign(name)
	ctx, cancel := context.WithCancel(context.Background())
	told := make(chan struct{})
	go func() {
		defer close(told)
		defer h.report(name, nil)
		for watcher := status.Watch(); ; {
			now, err := watcher.Next(ctx)
			if err != nil {
				return
			}
			h.report(name, now)
		}
	}()
	t.Cleanup(func() {
		end()
		cancel()
		<-told
	})
	return made.(*role.Host)
}
