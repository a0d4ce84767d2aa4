package server_test

import (
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// Two curators are asked for things that are right by themselves, and only one may have it.
func TestCatalogRaces(t *testing.T) {
	c := newCluster(t)
	other := start(t, etcd, c.prefix, nil).ready()
	clients := []clusterv1.ManagementServiceClient{c.asOwner(), clusterv1.NewManagementServiceClient(c.dial(other, selfSigned(t, c.owner)))}
	both := func(calls ...func(clusterv1.ManagementServiceClient) error) []error {
		var group sync.WaitGroup
		errs := make([]error, len(calls))
		for i, call := range calls {
			group.Go(func() { errs[i] = call(clients[i%2]) })
		}
		group.Wait()
		return errs
	}
	add := func(name, user string) func(clusterv1.ManagementServiceClient) error {
		return func(client clusterv1.ManagementServiceClient) error {
			_, err := client.AddPlugin(t.Context(), &clusterv1.AddPluginRequest{Manifest: plugin(name, &rolev1.RoleManifest{Name: name, ConsensusUser: user}), Digests: digests, Approve: true})
			return err
		}
	}
	remove := func(name string) func(clusterv1.ManagementServiceClient) error {
		return func(client clusterv1.ManagementServiceClient) error {
			_, err := client.RemovePlugin(t.Context(), &clusterv1.RemovePluginRequest{Name: name})
			return err
		}
	}
	one := func(what string, errs []error, code codes.Code) {
		t.Helper()
		for i, err := range errs {
			if err == nil && errs[1-i] != nil {
				if status.Code(errs[1-i]) != code {
					t.Errorf("%s: %v", what, errs[1-i])
				}
				return
			}
		}
		t.Errorf("%s: %v", what, errs)
	}
	for range 5 {
		one("two plugins with one user", both(add("first", "shared"), add("second", "shared")), codes.AlreadyExists)
		one("the same plugin removed twice", func() []error {
			name := "first"
			if state, _ := c.stored(); state.Plugins["second"] != nil {
				name = "second"
			}
			return both(remove(name), remove(name))
		}(), codes.NotFound)

		// Approved while another version comes to wait: whoever is second is told, or approves what it looked at.
		waits := c.offer(lamp("1.0.0"), digestOf("a"))
		errs := both(
			func(client clusterv1.ManagementServiceClient) error {
				_, err := client.ApprovePlugin(t.Context(), approval(waits))
				return err
			},
			func(client clusterv1.ManagementServiceClient) error {
				_, err := client.AddPlugin(t.Context(), &clusterv1.AddPluginRequest{Manifest: lamp("2.0.0", readPath("/srv")), Digests: digestOf("b")})
				return err
			})
		state, _ := c.stored()
		switch record := state.Plugins["lamp"]; {
		case errs[1] != nil:
			t.Error(errs[1])
		case errs[0] == nil:
			wantRecord(t, "approved first", record, `"1.0.0" waits "2.0.0" before "" granted [lamp=lamp]`)
		default:
			wantCode(t, errs[0], codes.Aborted)
			wantRecord(t, "replaced first", record, `"" waits "2.0.0" before "" granted []`)
		}
		if state.Plugins["lamp"].GetManifest() == nil {
			c.approve(state.Plugins["lamp"])
			state, _ = c.stored()
		}

		// Withdrawn by both, of one generation.
		generation := state.Plugins["lamp"].GetGeneration()
		set := func(user string) func(client clusterv1.ManagementServiceClient) error {
			return func(client clusterv1.ManagementServiceClient) error {
				grants := &clusterv1.RoleGrants{Role: "lamp", ConsensusUser: user}
				_, err := client.SetGrants(t.Context(), &clusterv1.SetGrantsRequest{Plugin: "lamp", Grants: grants, ExpectedGeneration: generation})
				return err
			}
		}
		if errs := both(set(""), set("")); (errs[0] == nil) == (errs[1] == nil) {
			t.Errorf("withdrawn by both: %v", errs)
		}
		// A role is given to a node while its plugin goes.
		errs = both(remove("lamp"), func(client clusterv1.ManagementServiceClient) error {
			_, err := client.AddRole(t.Context(), &clusterv1.AddRoleRequest{NodeId: c.id, Role: "lamp"})
			return err
		})
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Errorf("removed and assigned: %v", errs)
		}
		if errs[1] == nil {
			if _, err := clients[0].RemovePlugin(t.Context(), &clusterv1.RemovePluginRequest{Name: "lamp", RemoveRoles: true, Wipe: true}); err != nil {
				t.Fatal(err)
			}
		}
	}
}
