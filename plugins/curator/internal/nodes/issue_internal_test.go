package nodes

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// recorded is a store of which the records are read; nil: nobody has to read them.
type recorded struct {
	Store
	state *store.State
}

func (r recorded) ReadRecords(context.Context) (*store.State, error) { return r.state, nil }

// A role that is to leave has a certificate until it has left, and all records are read for no other.
func TestWhoRuns(t *testing.T) {
	const id = "reeve-1"
	with := func(roles ...*clusterv1.RoleAssignment) *clusterv1.NodeRecord {
		return &clusterv1.NodeRecord{Id: id, Roles: roles}
	}
	stays, leaves := &clusterv1.RoleAssignment{Role: "store"}, &clusterv1.RoleAssignment{Role: "store", Leaving: true}
	// The store has seen all that was decided, and has the members that it tells of.
	at := func(node *clusterv1.NodeRecord, members ...*consensusv1.StoreStateMember) *store.State {
		return &store.State{Nodes: map[string]*clusterv1.NodeRecord{id: node}, DesiredRevision: 7, Store: &consensusv1.StoreState{DesiredRevision: 7, Members: members}}
	}
	member := &consensusv1.StoreStateMember{NodeId: id, MemberId: "1"}
	for name, test := range map[string]struct {
		node    *clusterv1.NodeRecord
		records *store.State
		want    codes.Code
	}{
		"it is assigned":                     {with(stays), nil, codes.OK},
		"another role is":                    {with(&clusterv1.RoleAssignment{Role: "api"}), nil, codes.NotFound},
		"the node has gone":                  {nil, nil, codes.Unauthenticated},
		"it leaves":                          {with(leaves), at(with(leaves), member), codes.OK},
		"it has left":                        {with(leaves), at(with(leaves)), codes.NotFound},
		"it has left, and is given anew":     {with(leaves), at(with(stays)), codes.OK},
		"it leaves, and is taken meanwhile":  {with(leaves), at(with(), member), codes.NotFound},
		"it leaves, and so does its machine": {with(leaves), at(nil, member), codes.NotFound},
	} {
		s := NewService(Config{Store: recorded{state: test.records}})
		if err := s.runs(t.Context(), test.node, id, "store"); status.Code(err) != test.want {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
}
