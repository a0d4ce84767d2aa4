package command

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/setup"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// pluginCatalog is a cluster API that has plugins, and remembers what is granted.
type pluginCatalog struct {
	clusterv1.ManagementServiceClient
	plugins []*clusterv1.PluginRecord
	granted *clusterv1.SetGrantsRequest
}

func (c *pluginCatalog) ListPlugins(context.Context, *clusterv1.ListPluginsRequest, ...grpc.CallOption) (*clusterv1.ListPluginsResponse, error) {
	return &clusterv1.ListPluginsResponse{Plugins: c.plugins}, nil
}

func (c *pluginCatalog) SetGrants(_ context.Context, request *clusterv1.SetGrantsRequest, _ ...grpc.CallOption) (*clusterv1.SetGrantsResponse, error) {
	c.granted = request
	return &clusterv1.SetGrantsResponse{}, nil
}

// TestGrantsOfAMovedDirectory holds that the paths of grants change, and that a catalog without the plugin hostsfile is told nothing.
func TestGrantsOfAMovedDirectory(t *testing.T) {
	here := func(text string) string { return strings.Replace(text, "/a/", "/b/", 1) }
	without := &pluginCatalog{plugins: []*clusterv1.PluginRecord{{Name: "consensus"}}}
	if err := tellGrants(t.Context(), without, here); err != nil || without.granted != nil {
		t.Errorf("without the plugin: %v, granted %v", err, without.granted)
	}
	grants := &clusterv1.RoleGrants{Role: setup.Hostsfile, Grants: []*rolev1.Grant{{Parameters: map[string]string{"path": "/a/hosts"}}}}
	with := &pluginCatalog{plugins: []*clusterv1.PluginRecord{{Name: setup.Hostsfile, Generation: 7, Grants: []*clusterv1.RoleGrants{grants}}}}
	if err := tellGrants(t.Context(), with, here); err != nil || with.granted.GetExpectedGeneration() != 7 {
		t.Fatalf("%v, %v", err, with.granted)
	}
	if got := with.granted.GetGrants().GetGrants()[0].GetParameters()["path"]; got != "/b/hosts" {
		t.Errorf("granted %s", got)
	}
}

// TestRefused holds which errors end the tries to tell a cluster something: those that do not pass.
func TestRefused(t *testing.T) {
	for err, want := range map[error]bool{
		status.Error(codes.Unavailable, "no leader"):                                       false,
		status.Error(codes.Aborted, "somebody else changed it"):                            false,
		fault.New(fault.Unreachable, "no node runs there", ""):                             false,
		fault.FromRPC(status.Error(codes.PermissionDenied, "not the owner"), "cannot", ""): true,
		status.Error(codes.FailedPrecondition, "the node is gone"):                         true,
	} {
		if refused(err) != want {
			t.Errorf("%v: %t", err, refused(err))
		}
	}
}
