package server_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/proto/remit"
)

// operations is a random sequence of what an owner does with three plugins, whose versions share a few names of roles, users and grants.
type operations struct {
	c     *cluster
	owner clusterv1.ManagementServiceClient
	// approved is the digests of versions that the owner approved, or that asked for no more than an approved one, by plugin; decided is what all of those
	// asked for, also by plugin, as text.
	approved, decided map[string]map[string]bool
	builds            int
}

var (
	somePlugins = rapid.SampledFrom([]string{"p", "q", "s"})
	someRoles   = rapid.SampledFrom([]string{"ra", "rb", "rc", "rd"})
	someUsers   = rapid.SampledFrom([]string{"", "ua", "ub", "uc"})
	someGrants  = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"/a", "/b", "privileged", "limit"}), 0, 3, rapid.ID)
)

func grantsOf(names []string) (grants []*rolev1.Grant) {
	for _, name := range names {
		switch name {
		case "privileged":
			grants = append(grants, &rolev1.Grant{Name: name})
		case "limit":
			grants = append(grants, &rolev1.Grant{Name: name, Parameters: map[string]string{"store-leases": "7"}})
		default:
			grants = append(grants, readPath(name))
		}
	}
	return grants
}

// asks is all that a manifest asks for, each as a text.
func asks(manifest *rolev1.Manifest) (all []string) {
	for _, wanted := range remit.Wanted(manifest) {
		if wanted.GetConsensusUser() != "" {
			all = append(all, wanted.GetRole()+" user "+wanted.GetConsensusUser())
		}
		for _, grant := range wanted.GetGrants() {
			all = append(all, fmt.Sprint(wanted.GetRole(), " ", grant.GetName(), grant.GetParameters()))
		}
	}
	return all
}

func (o *operations) offer(t *rapid.T) {
	manifest := plugin(somePlugins.Draw(t, "plugin"))
	manifest.Version = fmt.Sprintf("1.%d.0", rapid.IntRange(0, 9).Draw(t, "version"))
	for _, role := range rapid.SliceOfNDistinct(someRoles, 1, 2, rapid.ID).Draw(t, "roles") {
		manifest.Roles = append(manifest.Roles, &rolev1.RoleManifest{
			Name: role, ConsensusUser: someUsers.Draw(t, "user"), Grants: grantsOf(someGrants.Draw(t, "wants")),
		})
	}
	o.add(t, manifest)
}

// less offers a version of a plugin that asks for some of what the one that runs asks for.
func (o *operations) less(t *rapid.T) {
	state, _ := o.c.stored()
	running := state.Plugins[somePlugins.Draw(t, "plugin")].GetManifest()
	if running == nil {
		t.Skip("nothing runs")
	}
	manifest := proto.CloneOf(running)
	manifest.Version = fmt.Sprintf("2.%d.0", o.builds)
	for _, role := range manifest.GetRoles() {
		role.Grants = slices.DeleteFunc(role.Grants, func(*rolev1.Grant) bool { return rapid.Bool().Draw(t, "not wanted") })
		if rapid.Bool().Draw(t, "no user") {
			role.ConsensusUser = ""
		}
	}
	o.add(t, manifest)
}

func (o *operations) add(t *rapid.T, manifest *rolev1.Manifest) {
	o.builds++
	digest := fmt.Sprintf("sha256:%064x", o.builds)
	request := &clusterv1.AddPluginRequest{Manifest: manifest, Digests: map[string]string{"linux/amd64": digest}, Approve: rapid.Bool().Draw(t, "approve")}
	if request.GetApprove() {
		request.Grants = o.some(t, manifest)
	}
	response, err := o.owner.AddPlugin(o.c.t.Context(), request)
	if !o.refused(t, err) && response.GetPlugin().GetDigests()["linux/amd64"] == digest {
		for _, ask := range asks(manifest) {
			if !request.GetApprove() && !o.decided[manifest.GetName()][ask] {
				t.Fatalf("a version runs that nobody approved: %v asks for %s", manifest, ask)
			}
		}
		o.ran(manifest, digest)
	}
}

func (o *operations) ran(manifest *rolev1.Manifest, digest string) {
	name := manifest.GetName()
	if o.approved[name] == nil {
		o.approved[name] = make(map[string]bool)
	}
	o.approved[name][digest] = true
	if o.decided[name] == nil {
		o.decided[name] = make(map[string]bool)
	}
	for _, ask := range asks(manifest) {
		o.decided[name][ask] = true
	}
}

// some is grants for some of the roles of a manifest, of which not all are wanted.
func (o *operations) some(t *rapid.T, manifest *rolev1.Manifest) (all []*clusterv1.RoleGrants) {
	for _, role := range manifest.GetRoles() {
		grants := &clusterv1.RoleGrants{Role: role.GetName()}
		if rapid.Bool().Draw(t, "with the user") {
			grants.ConsensusUser = role.GetConsensusUser()
		}
		for _, grant := range role.GetGrants() {
			if rapid.Bool().Draw(t, "grant") {
				grants.Grants = append(grants.Grants, grant)
			}
		}
		if rapid.IntRange(0, 9).Draw(t, "wrong") == 0 {
			grants.Grants = append(grants.Grants, grantsOf(someGrants.Draw(t, "more"))...)
		}
		all = append(all, grants)
	}
	return all
}

func (o *operations) approve(t *rapid.T) {
	state, _ := o.c.stored()
	waits := state.Plugins[somePlugins.Draw(t, "plugin")]
	request := approval(waits)
	request.Grants = o.some(t, waits.GetWaiting().GetManifest())
	if _, err := o.owner.ApprovePlugin(o.c.t.Context(), request); !o.refused(t, err) {
		o.ran(waits.GetWaiting().GetManifest(), waits.GetWaiting().GetDigests()["linux/amd64"])
	}
}

func (o *operations) set(t *rapid.T) {
	state, _ := o.c.stored()
	name := somePlugins.Draw(t, "plugin")
	manifest := state.Plugins[name].GetManifest()
	if rapid.Bool().Draw(t, "of what waits") {
		manifest = state.Plugins[name].GetWaiting().GetManifest()
	}
	for _, grants := range o.some(t, manifest) {
		_, err := o.owner.SetGrants(o.c.t.Context(), &clusterv1.SetGrantsRequest{Plugin: name, Grants: grants})
		o.refused(t, err)
	}
}

func (o *operations) remove(t *rapid.T) {
	name := somePlugins.Draw(t, "plugin")
	_, err := o.owner.RemovePlugin(o.c.t.Context(), &clusterv1.RemovePluginRequest{
		Name: name, RemoveRoles: rapid.Bool().Draw(t, "remove roles"), Wipe: rapid.Bool().Draw(t, "wipe"),
	})
	if !o.refused(t, err) {
		delete(o.decided, name) // the digests were approved all the same: a node may still be told of them
	}
}

func (o *operations) assign(t *rapid.T) {
	_, err := o.owner.AddRole(o.c.t.Context(), &clusterv1.AddRoleRequest{NodeId: o.c.id, Role: someRoles.Draw(t, "role")})
	o.refused(t, err)
}

func (o *operations) take(t *rapid.T) {
	_, err := o.owner.RemoveRole(o.c.t.Context(), &clusterv1.RemoveRoleRequest{NodeId: o.c.id, Role: someRoles.Draw(t, "role"), Wipe: rapid.Bool().Draw(t, "wipe")})
	o.refused(t, err)
}

// refused reports whether a call was refused, in a way in which calls are.
func (o *operations) refused(t *rapid.T, err error) bool {
	known := []codes.Code{codes.OK, codes.AlreadyExists, codes.FailedPrecondition, codes.InvalidArgument, codes.NotFound, codes.Aborted}
	if !slices.Contains(known, status.Code(err)) {
		t.Fatal(err)
	}
	return err != nil
}

// check holds what is stored against what must always be so.
func (o *operations) check(t *rapid.T) {
	state, desired := o.c.stored()
	checkGrants(t, state)
	checkNames(t, state)
	checkUsers(t, state, desired)
	for _, plugin := range state.Catalog() {
		for _, digest := range []string{plugin.GetDigests()["linux/amd64"], plugin.GetPrevious().GetDigests()["linux/amd64"]} {
			if digest != "" && !plugin.GetGenesis() && !o.approved[plugin.GetName()][digest] {
				t.Fatalf("%s was never approved: %v", digest, plugin)
			}
		}
	}
	node := state.Nodes[o.c.id]
	for _, assignment := range node.GetRoles() {
		if role, _ := state.Role(assignment.GetRole()); role == nil {
			t.Fatalf("the role %s is assigned, and nobody offers it", assignment.GetRole())
		}
		if slices.Contains(node.GetWipedRoles(), assignment.GetRole()) {
			t.Fatalf("the role %s is assigned, and its data is removed", assignment.GetRole())
		}
	}
}

// checkGrants: nothing is granted but what the version that runs asks for.
func checkGrants(t *rapid.T, state *store.State) {
	for _, plugin := range state.Catalog() {
		for _, granted := range plugin.GetGrants() {
			wanted := remit.ForRole(remit.Wanted(plugin.GetManifest()), granted.GetRole())
			if user := granted.GetConsensusUser(); user != "" && user != wanted.GetConsensusUser() {
				t.Fatalf("%s is granted, and not asked for: %v", user, plugin)
			}
			for _, grant := range granted.GetGrants() {
				if !slices.ContainsFunc(wanted.GetGrants(), func(other *rolev1.Grant) bool { return other.GetName() == grant.GetName() }) {
					t.Fatalf("%v is granted, and not asked for: %v", grant, plugin)
				}
			}
		}
	}
}

// checkNames: no two plugins share a role or a ConsensusUser, in whichever versions.
func checkNames(t *rapid.T, state *store.State) {
	owners := make(map[string]string)
	for _, plugin := range state.Catalog() {
		for _, manifest := range []*rolev1.Manifest{plugin.GetManifest(), plugin.GetWaiting().GetManifest(), plugin.GetPrevious().GetManifest()} {
			for _, role := range manifest.GetRoles() {
				for _, name := range []string{"role " + role.GetName(), "user " + role.GetConsensusUser()} {
					if owner, taken := owners[name]; taken && owner != plugin.GetName() && name != "user " {
						t.Fatalf("%s is that of %s and of %s", name, owner, plugin.GetName())
					}
					owners[name] = plugin.GetName()
				}
			}
		}
	}
}

// checkUsers: the document has exactly the users that are granted, but for the curator's own, with their bounds, and wipes none of them.
func checkUsers(t *rapid.T, state *store.State, desired *consensusv1.DesiredState) {
	want := make(map[string]string)
	for _, plugin := range state.Catalog() {
		for _, granted := range plugin.GetGrants() {
			if user := granted.GetConsensusUser(); user != "" && user != "curator" {
				bounds, err := remit.Of(granted.GetGrants())
				if err != nil {
					t.Fatalf("%v was granted: %v", granted, err)
				}
				want[user] = fmt.Sprint(granted.GetRole(), bounds.StoreBytes, bounds.StoreLeases)
			}
		}
	}
	got := make(map[string]string)
	for _, user := range desired.GetUsers() {
		got[user.GetConsensusUser()] = fmt.Sprint(user.GetRole(), user.GetBytesQuota(), user.GetLeasesQuota())
	}
	if !maps.Equal(want, got) {
		t.Fatalf("granted are %v, in the document are %v", want, got)
	}
	for _, user := range desired.GetWipedUsers() {
		if want[user] != "" {
			t.Fatalf("%s is granted, and wiped", user)
		}
	}
	if !slices.IsSorted(desired.GetWipedUsers()) || !slices.Equal(desired.GetWipedUsers(), state.Wiped) {
		t.Fatalf("wiped are %v, in the document are %v", state.Wiped, desired.GetWipedUsers())
	}
}

// reset takes away what the sequence before has left.
func (o *operations) reset(t *rapid.T) {
	o.decided = make(map[string]map[string]bool)
	if _, err := o.owner.SetRoles(o.c.t.Context(), &clusterv1.SetRolesRequest{NodeId: o.c.id, Roles: []*clusterv1.RoleAssignment{{Role: "store"}, {Role: "api"}}}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"p", "q", "s"} {
		_, err := o.owner.RemovePlugin(o.c.t.Context(), &clusterv1.RemovePluginRequest{Name: name})
		o.refused(t, err)
	}
}

func TestCatalogProperties(t *testing.T) {
	c := newCluster(t)
	o := &operations{c: c, owner: c.asOwner(), approved: make(map[string]map[string]bool)}
	told := toldOf(t, c)
	rapid.Check(t, func(t *rapid.T) {
		o.reset(t)
		t.Repeat(map[string]func(*rapid.T){
			"offer": o.offer, "less": o.less, "approve": o.approve, "set": o.set, "remove": o.remove, "assign": o.assign, "take": o.take, "": o.check,
		})
	})
	seen := told()
	for _, digest := range slices.Sorted(maps.Keys(seen)) {
		name := seen[digest]
		if !strings.HasPrefix(digest, "sha256:0123456789") && !o.approved[name][digest] {
			t.Errorf("the node was told of %s of plugin %s, which nobody approved", digest, name)
		}
	}
	if len(seen) < 3 {
		t.Errorf("the node was told of %d versions", len(seen))
	}
}

// toldOf follows what the node is told, until the returned function is called, which returns the digests, each with its plugin.
func toldOf(t *testing.T, c *cluster) func() map[string]string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	stream, err := c.asNode().Watch(ctx, &clusterv1.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]string)
	var group sync.WaitGroup
	group.Go(func() {
		for {
			response, err := stream.Recv()
			if err != nil {
				if ctx.Err() == nil {
					t.Errorf("Watch: %v", err)
				}
				return
			}
			for _, plugin := range response.GetPlugins() {
				if plugin.GetWaiting() != nil || len(plugin.GetDecided()) > 0 {
					t.Errorf("the node is given what waits: %v", plugin)
				}
				for _, digests := range []map[string]string{plugin.GetDigests(), plugin.GetPrevious().GetDigests()} {
					for _, digest := range digests {
						seen[digest] = plugin.GetName()
					}
				}
			}
		}
	})
	return func() map[string]string {
		cancel()
		group.Wait()
		return seen
	}
}
