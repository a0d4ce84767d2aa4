package node

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/catalog"
	"github.com/reeveproject/reeve/core/membership"
	"github.com/reeveproject/reeve/core/roles"
	"github.com/reeveproject/reeve/core/seal"
	"github.com/reeveproject/reeve/core/storage"
	names "github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/proto/ticket"
)

// A node comes into a cluster that there is: it registers, waits for its approval, commits, and runs what it was assigned, of the executables that it has
// brought. It is stopped and started on the way.
func TestComesIntoACluster(t *testing.T) {
	e := newElsewhere(t)
	a, file := newNewcomer(t, e)
	a.start()
	s := a.until("approval", isIn(membership.Foreign, "reeve node approve"))
	id := s.GetNodeId()
	if names.NodeID(s.GetPublicKey()) != id || !strings.Contains(s.GetMembership().GetReason(), id) || len(s.GetNode().GetInstances()) != 0 ||
		s.GetNode().GetMembership().GetState() != membership.Foreign || s.GetMembership().GetClusterId() != foreignCluster {
		t.Errorf("status %v", s)
	}
	e.mu.Lock()
	asked := e.registered[0]
	e.mu.Unlock()
	if len(asked.GetJoinPublicKey()) != 32 || asked.GetLabels()["rack"] != "7" || asked.GetRoles()[0].GetRole() != "api" || asked.GetVersion() != "1.2.3" ||
		len(asked.GetAddresses()) == 0 || asked.GetSealer() != "file" || asked.GetVolume() != "plain" {
		t.Errorf("registered %v", asked)
	}
	if err := errors.Join(a.end(), os.Remove(file)); err != nil {
		t.Fatal(err)
	}
	// What is not answered in time is asked again, so either may come more than once.
	e.mu.Lock()
	registered := len(e.registered)
	e.mu.Unlock()
	a.start()
	a.until("approval again", isIn(membership.Foreign, "reeve node approve"))
	e.state.Set(clusterv1.NodeState_NODE_STATE_STANDBY)
	a.until("the role", ready)
	a.until("the cluster", isIn(membership.Home, "member of the cluster"))
	e.mu.Lock()
	if len(e.registered) != registered || len(e.committed) == 0 {
		t.Errorf("registered %d times before the restart, %d times in all; committed %v", registered, len(e.registered), e.committed)
	}
	for _, committed := range e.committed {
		if len(committed.GetCuk()) != 0 || committed.GetIncarnation().GetNumber() != 2 {
			t.Errorf("committed %v", committed)
		}
	}
	e.mu.Unlock()
	if err := a.end(); err != nil {
		t.Fatal(err)
	}
	head, err := seal.NewStore(a.layout().Configuration(), seal.File{}).Head()
	if err != nil || head.Phase != seal.Member || len(head.Owner) != 32 || head.StoreFormed {
		t.Errorf("%+v, %v", head, err)
	}
	known, err := catalog.ReadAssignment(a.layout().Assignment())
	if err != nil || known.ClusterAPIUser() != "keeper" {
		t.Errorf("%+v, %v", known, err)
	}
	a.start()
	a.until("the role after a restart", ready)
	a.until("the cluster after a restart", isIn(membership.Home, ""))
	if _, err := e.reported.Wait(a.context(), func(s *clusterv1.NodeStatus) bool { return s.GetMembership().GetState() == membership.Home }); err != nil {
		t.Errorf("the membership is not reported: %v", err)
	}
	e.drained.Set(true)
	a.until("the role to be held", func(s *nodev1.Status) bool {
		return len(s.GetNode().GetInstances()) == 1 && strings.Contains(s.GetNode().GetInstances()[0].GetReason(), "the node is drained")
	})
	e.drained.Set(false)
	a.until("the role again", ready)
	// Roles run when the cluster removes it.
	e.removed.Set("decommissioned by owner")
	a.until("the end", func(s *nodev1.Status) bool {
		return isIn(membership.Disowning, "decommissioned by owner")(s) && strings.Contains(s.GetStorage().GetProblem(), "erased")
	})
	if left, err := anyRecords(a.layout()); err != nil || left {
		t.Errorf("roles run on: %v", err)
	}
	if _, err := os.Lstat(a.layout().Assignment()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the assignment is left: %v", err)
	}
	if err := a.end(); err != nil {
		t.Fatal(err)
	}
}

// A node that was off while all curators moved says what to do, and finds the one that its parameters name then.
func TestCuratorsHaveMoved(t *testing.T) {
	e := newElsewhere(t)
	a, _ := newNewcomer(t, e)
	a.start()
	a.until("approval", isIn(membership.Foreign, "reeve node approve"))
	e.state.Set(clusterv1.NodeState_NODE_STATE_STANDBY)
	a.until("the cluster", isIn(membership.Home, "member of the cluster"))
	if err := a.end(); err != nil {
		t.Fatal(err)
	}
	e.move()
	a.start()
	a.until("the remedy", isIn(membership.Split, "network.curators"))
	if err := a.end(); err != nil {
		t.Fatal(err)
	}
	a.parameters.Network = &nodev1.Network{Curators: []string{e.address}}
	a.start()
	a.until("the cluster again", isIn(membership.Home, ""))
	if err := a.end(); err != nil {
		t.Fatal(err)
	}
}

// A node that was off while all curators moved is told by another node where one is now.
func TestAnotherNodeNamesTheCurator(t *testing.T) {
	e := newElsewhere(t)
	stays, _ := newNewcomer(t, e)
	stays.parameters.Network = &nodev1.Network{ApiListen: "127.0.0.1:0"}
	stays.start()
	stays.until("approval", isIn(membership.Foreign, "reeve node approve"))
	e.state.Set(clusterv1.NodeState_NODE_STATE_STANDBY)
	entered := func(of *alive, is func(*hostv1.DirectoryNode) bool) {
		t.Helper()
		id := of.until("the cluster", isIn(membership.Home, "member of the cluster")).GetNodeId()
		if _, err := e.directory.Wait(of.context(), func(d *hostv1.Directory) bool {
			return slices.ContainsFunc(d.GetNodes(), func(n *hostv1.DirectoryNode) bool { return n.GetNodeId() == id && is(n) })
		}); err != nil {
			t.Fatal(err)
		}
	}
	entered(stays, func(n *hostv1.DirectoryNode) bool { return n.GetApiAddress() != "" })
	a, _ := newNewcomer(t, e)
	a.start()
	entered(a, func(*hostv1.DirectoryNode) bool { return true })
	if err := a.end(); err != nil {
		t.Fatal(err)
	}
	e.move()
	e.enter(&hostv1.DirectoryNode{NodeId: "reeve-curator", Roles: []*hostv1.DirectoryRole{{
		Role: "curator", Endpoints: []*rolev1.Endpoint{{Name: roles.CapabilityCluster, Address: e.address}},
	}}})
	stays.until("the new curator", func(s *nodev1.Status) bool { return slices.Contains(s.GetCluster().GetCurators(), e.address) })
	a.start()
	a.until("the cluster again", isIn(membership.Home, "member of the cluster"))
	if err := errors.Join(a.end(), stays.end()); err != nil {
		t.Fatal(err)
	}
}

// A ticket that has ended is replaced by another in the parameters.
func TestAnotherTicket(t *testing.T) {
	e := newElsewhere(t)
	a, file := newNewcomer(t, e)
	if err := os.WriteFile(file, []byte(e.ticket("00000000000000bb")), 0o600); err != nil {
		t.Fatal(err)
	}
	a.start()
	s := a.until("the refusal", isIn(membership.Unknown, "the cluster refuses: no such ticket"))
	id := s.GetNodeId()
	if err := errors.Join(a.end(), os.WriteFile(file, []byte(e.ticket("00000000000000aa")), 0o600)); err != nil {
		t.Fatal(err)
	}
	a.start()
	if s := a.until("approval", isIn(membership.Foreign, "reeve node approve")); s.GetNodeId() != id {
		t.Errorf("node %s has become %s", id, s.GetNodeId())
	}
	if err := a.end(); err != nil {
		t.Fatal(err)
	}
}

// A node that waits for its approval while the cluster gets another CA finds it again by a new ticket, which it needs for nothing else.
func TestAnotherTicketWhileTheNodeWaits(t *testing.T) {
	e := newElsewhere(t)
	a, file := newNewcomer(t, e)
	a.start()
	id := a.until("approval", isIn(membership.Foreign, "reeve node approve")).GetNodeId()
	if err := a.end(); err != nil {
		t.Fatal(err)
	}
	// The same cluster, by another CA, at another address.
	later := newElsewhere(t)
	later.registered, later.plugins = e.registered, e.plugins
	later.state.Set(clusterv1.NodeState_NODE_STATE_STANDBY)
	if err := os.WriteFile(file, []byte(later.ticket("00000000000000bb")), 0o600); err != nil {
		t.Fatal(err)
	}
	a.start()
	if s := a.until("the role", ready); s.GetNodeId() != id {
		t.Errorf("node %s has become %s", id, s.GetNodeId())
	}
	a.until("the cluster", isIn(membership.Home, ""))
	if len(later.registered) != len(e.registered) {
		t.Errorf("registered again: %v", later.registered)
	}
	if err := a.end(); err != nil {
		t.Fatal(err)
	}
}

// A node that waits is not kept from it by the ticket of another cluster that has been put there since.
func TestTheTicketOfAnotherClusterWhileTheNodeWaits(t *testing.T) {
	e := newElsewhere(t)
	a, file := newNewcomer(t, e)
	a.start()
	a.until("approval", isIn(membership.Foreign, "reeve node approve"))
	text, err := ticket.Encode(&clusterv1.TicketText{
		TicketId: "00000000000000cc", Secret: e.secret, ClusterId: strings.Repeat("f", 32), CaPins: [][]byte{make([]byte, 32)}, Curators: []string{"127.0.0.1:1"},
	})
	if err := errors.Join(a.end(), err, os.WriteFile(file, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	a.start()
	a.until("approval again", isIn(membership.Foreign, "reeve node approve"))
	if err := a.end(); err != nil {
		t.Fatal(err)
	}
}

// A node that the cluster removes says so, and nothing else, for ever.
func TestIsDisowned(t *testing.T) {
	e := newElsewhere(t)
	a, _ := newNewcomer(t, e)
	a.start()
	a.until("approval", isIn(membership.Foreign, "reeve node approve"))
	e.removed.Set("deleted by owner at noon")
	for range 2 {
		s := a.until("the end", func(s *nodev1.Status) bool {
			return isIn(membership.Disowning, "deleted by owner at noon")(s) && strings.Contains(s.GetStorage().GetProblem(), "erased")
		})
		if !strings.Contains(s.GetMembership().GetReason(), "empty system directory") || s.GetMembership().GetClusterId() != foreignCluster {
			t.Errorf("status %v", s)
		}
		for _, path := range []string{a.layout().Configuration(), a.layout().Identity(), a.layout().Roles()} {
			if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s is left: %v", path, err)
			}
		}
		if _, err := a.client().RestartRole(a.context(), &nodev1.RestartRoleRequest{Role: "api"}); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "deleted by owner") {
			t.Errorf("a call: %v", err)
		}
		if err := a.end(); err != nil {
			t.Fatal(err)
		}
		a.start()
	}
	if err := a.end(); err != nil {
		t.Fatal(err)
	}
}

// A core that was killed after it had kept that the node was removed leaves roles behind: the next one ends them before it erases anything.
func TestDisownedRolesAreEnded(t *testing.T) {
	a := newAlive(t, plain())
	a.start()
	a.until("the role", ready)
	a.stop(ErrLeave)
	if err := <-a.ended; err != nil {
		t.Fatal(err)
	}
	if left, err := anyRecords(a.layout()); err != nil || !left {
		t.Fatalf("no role runs on: %v", err)
	}
	head, err := seal.NewStore(a.layout().Configuration(), seal.File{}).Head()
	if err != nil {
		t.Fatal(err)
	}
	marker := map[string]any{"node_id": head.NodeID, "cluster_id": head.ClusterID, "reason": "gone", "since": time.Now().UTC().Round(time.Second)}
	type ordered struct {
		NodeID    any `json:"node_id"`
		ClusterID any `json:"cluster_id"`
		Reason    any `json:"reason"`
		Since     any `json:"since"`
	}
	if err := storage.WriteDocument(a.layout().Disowned(), 1, ordered{marker["node_id"], marker["cluster_id"], marker["reason"], marker["since"]}, 0o600); err != nil {
		t.Fatal(err)
	}
	// Where the volume of another node is in the place of its own, nothing is erased, and it is tried again.
	own, err := os.ReadFile(a.layout().Volume())
	if err != nil {
		t.Fatal(err)
	}
	if err := storage.WriteJSON(a.layout().Volume(), storage.Volume{Version: 1, Kind: storage.Plain, ClusterID: foreignCluster, NodeID: "another"}, 0o400); err != nil {
		t.Fatal(err)
	}
	a.start()
	a.until("that it was removed", isIn(membership.Disowning, "gone"))
	var other *storage.VolumeError
	if err := a.end(); !errors.As(err, &other) {
		t.Fatalf("on the volume of another node: %v", err)
	}
	if _, err := os.Lstat(a.layout().Assignment()); err != nil {
		t.Error(err)
	}
	if err := storage.WriteFile(a.layout().Volume(), own, 0o400); err != nil {
		t.Fatal(err)
	}
	a.start()
	a.until("the end", func(s *nodev1.Status) bool { return strings.Contains(s.GetStorage().GetProblem(), "erased") })
	if left, err := anyRecords(a.layout()); err != nil || left {
		t.Errorf("roles run on: %v", err)
	}
	if err := a.end(); err != nil {
		t.Fatal(err)
	}
}
