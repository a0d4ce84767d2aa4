package command

import (
	"context"
	"encoding/json"

	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/cli/await"
	"github.com/reeveproject/reeve/cli/dev"
	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/setup"
	"github.com/reeveproject/reeve/cli/target"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/proto/remit"
)

// ticketSeconds is how long the ticket of a node is good that is made in a dev directory: it is shown within moments, and once.
const ticketSeconds = 600

// add makes nodes that are not there yet, each with a ticket of its own, and starts them. Who waits until they are up approves them.
func (f *fleet) add(ctx context.Context, numbers []int) error {
	if err := f.freePeerPort(ctx); err != nil {
		return err
	}
	tickets, err := f.tickets(ctx, numbers)
	if err != nil {
		return err
	}
	for i, number := range numbers {
		directory, err := f.first.MakeNode(number, tickets[i], f.options.plan.Volume, f.c.Places)
		if err != nil {
			return err
		}
		if err := f.start(ctx, directory); err != nil {
			return err
		}
	}
	return nil
}

// tickets has the cluster make a ticket for each of some nodes, and lets their roles hostsfile keep the files of the nodes.
func (f *fleet) tickets(ctx context.Context, numbers []int) ([]string, error) {
	cluster, err := target.Open(ctx, target.Options{Dir: f.first.Path, Now: f.c.Now})
	if err != nil {
		return nil, err
	}
	defer func() { _ = cluster.Close() }()
	management := cluster.API()
	if err := f.grantHosts(ctx, cluster, management, numbers); err != nil {
		return nil, err
	}
	var texts []string
	for _, number := range numbers {
		made, err := makeTicket(ctx, management, &clusterv1.CreateTicketRequest{
			LifetimeSeconds: ticketSeconds, Uses: 1, Roles: dev.Asks(number), Note: "reeve dev up: " + f.first.Path,
		})
		if err != nil {
			return nil, err
		}
		texts = append(texts, made.Text)
	}
	return texts, nil
}

// grantHosts grants the role hostsfile the files of nodes: what is granted is the whole cluster's, and each node of a dev directory has a file of its own.
func (f *fleet) grantHosts(ctx context.Context, cluster *target.Target, management clusterv1.ManagementServiceClient, numbers []int) error {
	record, err := getPlugin(ctx, cluster, setup.Hostsfile)
	if err != nil {
		return err
	}
	grants := proto.CloneOf(remit.ForRole(record.GetGrants(), setup.Hostsfile))
	if grants == nil {
		grants = &clusterv1.RoleGrants{Role: setup.Hostsfile}
	}
	changed := false
	for _, number := range numbers {
		grant := &rolev1.Grant{Name: remit.ReplaceFile, Parameters: map[string]string{"path": f.first.HostsFile(number)}}
		if !remit.Has(grants.GetGrants(), grant) {
			grants.Grants, changed = append(grants.Grants, grant), true
		}
	}
	if !changed {
		return nil
	}
	_, err = management.SetGrants(ctx, &clusterv1.SetGrantsRequest{Plugin: record.GetName(), Grants: grants, ExpectedGeneration: record.GetGeneration()})
	return fault.FromRPC(err, "cannot grant the role hostsfile the files of more nodes", "Run the command again.")
}

// freePeerPort gives the store's member of the first node another port for its peers if the usual one is another cluster's. It listens there as soon as there is a
// second member, and not before.
func (f *fleet) freePeerPort(ctx context.Context) error {
	if len(f.others) > 0 {
		return nil
	}
	listen, err := f.first.PeerListen()
	if err != nil || listen == "" {
		return err
	}
	cluster, err := target.Open(ctx, target.Options{Dir: f.first.Path, Now: f.c.Now})
	if err != nil {
		return err
	}
	defer func() { _ = cluster.Close() }()
	id := f.nodes[0].follower.Status().GetNodeId()
	node, err := getNode(ctx, cluster, target.Node{ID: id})
	if err != nil {
		return err
	}
	configuration := make(map[string]any)
	for _, role := range node.GetRecord().GetRoles() {
		if role.GetRole() == setup.Consensus && role.GetConfiguration() != "" {
			if err := json.Unmarshal([]byte(role.GetConfiguration()), &configuration); err != nil {
				return fault.Wrap(fault.Failed, err, "cannot read the configuration of role consensus", "")
			}
		}
	}
	if configuration["peerListen"] != nil {
		return nil
	}
	configuration["peerListen"] = listen
	document, err := json.Marshal(configuration)
	if err != nil {
		return err
	}
	response, err := cluster.API().AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: id, Role: setup.Consensus, Configuration: string(document)})
	if err != nil {
		return fault.FromRPC(err, "cannot give the first node's member of the store another port for its peers", "")
	}
	f.say("Another program has the port of the store's members: the first node's listens on " + listen + ".")
	condition := &await.Role{Name: setup.Consensus, NodeID: id, State: await.Ready}
	for _, role := range response.GetNode().GetRoles() {
		if role.GetRole() == setup.Consensus {
			condition.Generation = role.GetGeneration()
		}
	}
	_, err = f.c.await(ctx, id, f.options.timeout, []await.Source{clusterSource(cluster, id)}, condition)
	return err
}
