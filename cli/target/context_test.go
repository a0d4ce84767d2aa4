package target_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/cli/contexts"
	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/target"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

func TestRevoked(t *testing.T) {
	r := newRig(t)
	r.login(r.byAddress(), target.LoginPlan{Name: "lab", KeyFile: r.alice()})
	if _, err := r.owner.RevokeOperator(t.Context(), &clusterv1.RevokeOperatorRequest{Name: "alice"}); err != nil {
		t.Fatal(err)
	}
	err := list(t.Context(), r.open())
	if fault.CodeOf(err) != fault.Refused || !strings.Contains(err.Error(), "operator \"alice\", of whom the session is, was revoked. Log in again: `reeve login --name lab --key ") {
		t.Error(err)
	}
	// Added again under the name it is another one.
	r.alice()
	if err := list(t.Context(), r.open()); fault.CodeOf(err) != fault.Refused {
		t.Errorf("the session of the one before: %v", err)
	}
}

func TestMayNot(t *testing.T) {
	r := newRig(t)
	r.login(r.byAddress(), target.LoginPlan{Name: "lab", KeyFile: r.alice()})
	management, err := r.open().Management(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = management.RevokeOperator(t.Context(), &clusterv1.RevokeOperatorRequest{Name: "alice"})
	if err := fault.FromRPC(err, "no", ""); fault.CodeOf(err) != fault.Refused || !strings.Contains(err.Error(), "reeve whoami") {
		t.Error(err)
	}
}

// TestNodeAPI asks a node by itself, with the certificate of a session, also while the cluster is away.
func TestNodeAPI(t *testing.T) {
	r := newRig(t)
	r.login(r.byAddress(), target.LoginPlan{Name: "lab", KeyFile: r.alice()})
	ask := func() {
		t.Helper()
		cluster := r.open()
		node, err := cluster.FindNode(t.Context(), "reeve-bb")
		if err != nil {
			t.Fatal(err)
		}
		api, err := cluster.NodeAPI(t.Context(), node)
		if err != nil {
			t.Fatal(err)
		}
		if response, err := api.GetStatus(t.Context(), &nodev1.GetStatusRequest{}); err != nil || response.GetStatus().GetNodeId() != nodeB {
			t.Errorf("%v, %v", response, err)
		}
		if _, err := api.ReplaceOwner(t.Context(), &nodev1.ReplaceOwnerRequest{OwnerPublicKey: make([]byte, 32)}); err == nil {
			t.Error("the owner was replaced over the network")
		}
	}
	ask()
	if err := r.StopCurator(); err != nil {
		t.Fatal(err)
	}
	ask()
}

// TestCuratorsMove stops the curator and starts it at another address.
func TestCuratorsMove(t *testing.T) {
	for _, test := range []struct {
		name    string
		options func(*rig) target.Options
	}{{"by the socket", (*rig).bySocket}, {"by a node", (*rig).byAddress}} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t)
			r.login(test.options(r), target.LoginPlan{Name: "lab", KeyFile: r.alice()})
			r.move()
			cluster := r.open()
			if err := list(t.Context(), cluster); err != nil {
				t.Fatal(err)
			}
			if err := cluster.Close(); err != nil {
				t.Fatal(err)
			}
			config, err := r.store.Load()
			if err != nil {
				t.Fatal(err)
			}
			if curators := config.Find("lab").Curators; len(curators) != 1 || curators[0] != r.Curator() {
				t.Errorf("curators %v, and it is at %s", curators, r.Curator())
			}
		})
	}
	t.Run("nobody knows", func(t *testing.T) {
		r := newRig(t)
		r.login(r.byAddress(), target.LoginPlan{Name: "lab", KeyFile: r.alice()})
		if err := r.store.Update(t.Context(), func(config *contexts.Config) error { config.Find("lab").Nodes = nil; return nil }); err != nil {
			t.Fatal(err)
		}
		r.move()
		err := list(t.Context(), r.open())
		if fault.CodeOf(err) != fault.Unreachable || !strings.Contains(err.Error(), "reeve context show lab") {
			t.Error(err)
		}
	})
}

// TestLostAddress reaches the curator of this machine although its address leads nowhere. Others, who are told where the curators are, are not told of that way.
func TestLostAddress(t *testing.T) {
	r := newRig(t)
	r.lost = true
	options := r.bySocket()
	options.OwnerKeyFile = r.ownerKey
	cluster, err := target.Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	if err := list(t.Context(), cluster); err != nil {
		t.Error(err)
	}
	if curators := cluster.Curators(); !slices.Equal(curators, []string{nowhere}) {
		t.Errorf("the curators are told as %v", curators)
	}
	if err := cluster.Close(); err != nil {
		t.Error(err)
	}
	r.login(r.bySocket(), target.LoginPlan{Name: "lab", KeyFile: r.alice()})
	cluster = r.open()
	if err := list(t.Context(), cluster); err != nil {
		t.Error(err)
	}
	if err := cluster.Close(); err != nil {
		t.Error(err)
	}
}

// TestAnotherClusterAtTheSocket makes the cluster of a directory anew.
func TestAnotherClusterAtTheSocket(t *testing.T) {
	r := newRig(t)
	r.login(r.bySocket(), target.LoginPlan{Name: "lab", KeyFile: r.ownerKey})
	r.end()
	other := newRigOf(t, otherID)
	other.serveLocal(r.socket)
	_, err := target.Open(t.Context(), r.options())
	if fault.CodeOf(err) != fault.Refused || !strings.Contains(err.Error(), "is of cluster "+otherID+", and context lab is for cluster "+labID) {
		t.Error(err)
	}
}

// TestCallSaysWhyThereIsNoConnection holds that the fault of the connection, which the first call makes, is that of the call.
func TestCallSaysWhyThereIsNoConnection(t *testing.T) {
	r := newRig(t)
	cluster, err := target.Open(t.Context(), r.bySocket())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cluster.Close() }()
	_, err = cluster.API().ListNodes(t.Context(), &clusterv1.ListNodesRequest{})
	if err = fault.FromRPC(err, "no list", "try again"); fault.CodeOf(err) != fault.Refused || !strings.Contains(err.Error(), "reeve login") {
		t.Errorf("it says %v", err)
	}
}
