package command

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/cli/dev"
	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/setup"
	"github.com/reeveproject/reeve/cli/target"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/proto/remit"
)

// tellAgain is the time between two tries to reach a cluster that is about to come up.
const tellAgain = 200 * time.Millisecond

// tellMove changes what the cluster has of the hosts files of a directory that was moved: the role hostsfile is granted files by their paths, and has one in its
// configuration. It waits for the cluster API as long as a node may take to be up.
func (f *fleet) tellMove(ctx context.Context) error {
	places, err := f.first.Moved()
	if err != nil || len(places) == 0 {
		return err
	}
	f.say("The directory was moved here from " + places[len(places)-1] + ".")
	ctx, cancel := context.WithTimeout(ctx, f.options.timeout)
	defer cancel()
	for {
		err := f.tellPlaces(ctx, places)
		if err == nil {
			return f.first.Told()
		}
		if refused(err) {
			return fault.FromRPC(err, "cannot tell the cluster that its dev directory was moved", "")
		}
		select {
		case <-ctx.Done():
			return errors.Join(fault.New(fault.Failed, "cannot tell the cluster that its dev directory was moved", "Run the command again."), err)
		case <-time.After(tellAgain):
		}
	}
}

// refused says whether a call fails however often it is made. One that lost against another change does not, nor one of a cluster that is not up yet.
func refused(err error) bool {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.NotFound, codes.PermissionDenied, codes.FailedPrecondition, codes.Unimplemented:
		return true
	default:
		return false
	}
}

func (f *fleet) tellPlaces(ctx context.Context, places []string) error {
	cluster, err := target.Open(ctx, target.Options{Dir: f.first.Path, Now: f.c.Now})
	if err != nil {
		return err
	}
	defer func() { _ = cluster.Close() }()
	here := func(text string) string {
		for _, place := range places {
			text = dev.MovedPath(text, place, f.first.State)
		}
		return text
	}
	management := cluster.API()
	if err := tellGrants(ctx, management, here); err != nil {
		return err
	}
	nodes, err := cluster.ListNodes(ctx)
	if err != nil {
		return err
	}
	for _, node := range nodes {
		for _, role := range node.GetRecord().GetRoles() {
			configuration := here(role.GetConfiguration())
			if configuration == role.GetConfiguration() {
				continue
			}
			if _, err := management.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: node.GetRecord().GetId(), Role: role.GetRole(), Configuration: configuration}); err != nil {
				return err
			}
		}
	}
	return nil
}

// tellGrants changes the paths in what is granted to the role hostsfile. Where its plugin is not in the catalog nothing is granted.
func tellGrants(ctx context.Context, management clusterv1.ManagementServiceClient, here func(string) string) error {
	plugins, err := management.ListPlugins(ctx, &clusterv1.ListPluginsRequest{})
	if err != nil {
		return err
	}
	record := find(plugins.GetPlugins(), setup.Hostsfile)
	granted := remit.ForRole(record.GetGrants(), setup.Hostsfile)
	grants := proto.CloneOf(granted)
	for _, grant := range grants.GetGrants() {
		for name, value := range grant.GetParameters() {
			grant.Parameters[name] = here(value)
		}
	}
	if proto.Equal(grants, granted) {
		return nil
	}
	_, err = management.SetGrants(ctx, &clusterv1.SetGrantsRequest{Plugin: record.GetName(), Grants: grants, ExpectedGeneration: record.GetGeneration()})
	return err
}
