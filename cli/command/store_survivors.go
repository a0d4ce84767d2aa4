package command

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/setup"
	"github.com/reeveproject/reeve/cli/target"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// survivor is a node whose member may become the only one.
type survivor struct {
	target.Own
	// state is how its member is; nil: the node does not say, because of err.
	state *consensusv1.MemberState
	err   error
}

// promised is the recovery that the member takes part in and that is not done; nil: none.
func (s survivor) promised() *consensusv1.QuorumRecovery {
	if r := s.state.GetRecovery(); r.GetPhase() != consensusv1.QuorumRecoveryPhase_QUORUM_RECOVERY_PHASE_DONE {
		return r
	}
	return nil
}

// begun reports whether the member has begun to become the only one, from which there is no way back.
func (s survivor) begun() bool {
	r := s.promised()
	return r != nil && r.Phase != consensusv1.QuorumRecoveryPhase_QUORUM_RECOVERY_PHASE_PROMISED
}

// ask asks all nodes at once how their members are.
func (r *quorumRecovery) ask(ctx context.Context, own []target.Own) {
	r.survivors = make([]survivor, len(own))
	var asking sync.WaitGroup
	for n, node := range own {
		asking.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, survivorTimeout)
			defer cancel()
			r.survivors[n] = askOne(ctx, node)
		})
	}
	asking.Wait()
}

// askOne asks a node. It waits for a member that is only starting, since the recovery would pass over it and lose what only it has. It does not wait for a node that is not reached, or has no member.
func askOne(ctx context.Context, node target.Own) survivor {
	s := survivor{Own: node}
	for {
		var from peer.Peer // is set if the node itself has answered
		answer, err := node.API.GetStoreMember(ctx, &nodev1.GetStoreMemberRequest{}, grpc.Peer(&from))
		if s.err == nil || ctx.Err() == nil { // otherwise the answer before says why
			s.state, s.err = answer.GetMember(), err
		}
		if status.Code(err) != codes.Unavailable || from.Addr == nil || lacksMember(ctx, node) {
			return s
		}
		select {
		case <-ctx.Done():
			return s
		case <-time.After(recoverAgain):
		}
	}
}

// lacksMember says whether a node runs other roles and not that of the store. A node without any role may only be starting.
func lacksMember(ctx context.Context, node target.Own) bool {
	answer, err := node.API.GetStatus(ctx, &nodev1.GetStatusRequest{})
	instances := answer.GetStatus().GetNode().GetInstances()
	return err == nil && len(instances) > 0 && !slices.ContainsFunc(instances, func(instance *clusterv1.InstanceStatus) bool { return instance.GetRole() == setup.Consensus })
}

// sort keeps the members of the newest generation of the store as survivors. What others have is of a former one: the members of that generation have gone on without them.
func (r *quorumRecovery) sort() error {
	var newest *survivor
	ours := func(s survivor) bool { return s.state != nil && s.state.ClusterId == r.clusterID }
	for _, s := range r.survivors {
		switch {
		case !ours(s):
		case newest == nil || s.state.Generation > newest.state.Generation:
			newest = &s
		case s.state.Generation == newest.state.Generation && !bytes.Equal(s.state.GenerationId, newest.state.GenerationId):
			return fault.New(fault.Refused, fmt.Sprintf("there are two stores: node %s has a member of generation %s, and node %s one of generation %s",
				newest.ID, consensusv1.ShowGeneration(newest.state.Generation, newest.state.GenerationId), s.ID, consensusv1.ShowGeneration(s.state.Generation, s.state.GenerationId)),
				"The store was begun again twice. Keep the one whose data you need, and stop the nodes of the other before you run this command again.")
		}
	}
	all := r.survivors
	r.survivors = nil
	for _, s := range all {
		if ours(s) && s.state.Generation == newest.state.Generation {
			r.survivors = append(r.survivors, s)
		} else {
			r.rest = append(r.rest, s)
		}
	}
	return nil
}

// asked are all nodes that were asked.
func (r *quorumRecovery) asked() []survivor { return slices.Concat(r.survivors, r.rest) }

// findRecovery finds the recovery that was begun before.
func (r *quorumRecovery) findRecovery() error {
	for _, s := range r.survivors {
		promised := s.promised()
		switch {
		case promised == nil:
		case r.id == "":
			r.id = promised.Id
		case r.id != promised.Id:
			return fault.New(fault.Refused, fmt.Sprintf("two recoveries were begun: node %s has promised %s, and another node %s", s.ID, promised.Id, r.id),
				"Agree on one: run `reeve store recover-quorum --abandon` where the other was begun, then this command again.")
		}
	}
	return nil
}

// voters are the survivors that may become the only member.
func (r *quorumRecovery) voters() []survivor {
	return slices.DeleteFunc(slices.Clone(r.survivors), func(s survivor) bool { return !s.state.GetVoter() })
}

// freshest is the survivor that has most, of those whose files can be used; nil: there is none. Of those that have the same, it is one whose data nobody doubts, or the one that was chosen before.
func (r *quorumRecovery) freshest() (best *survivor) {
	for _, s := range r.voters() {
		if s.state.Unusable {
			continue
		}
		if best == nil || cmp.Or(s.compare(*best), s.trust()-best.trust(), s.wasChosen()) > 0 {
			best = &s
		}
	}
	return best
}

// compare tells as raft does which of two logs has more.
func (s survivor) compare(other survivor) int {
	return cmp.Or(cmp.Compare(s.state.GetLastTerm(), other.state.GetLastTerm()), cmp.Compare(s.state.GetLastIndex(), other.state.GetLastIndex()))
}

// trust is 1 if nobody doubts the member's data.
func (s survivor) trust() int {
	if s.state.GetDamage() == "" {
		return 1
	}
	return 0
}

// wasChosen is 1 if the member was chosen before, by the recovery that it has promised.
func (s survivor) wasChosen() int {
	if s.promised().GetNodeId() == s.ID {
		return 1
	}
	return 0
}

// lost are the nodes with members that no reached node is.
func (r *quorumRecovery) lost() (lost []string) {
	for _, s := range r.survivors {
		for _, member := range s.state.GetMembers() {
			known := slices.ContainsFunc(r.survivors, func(other survivor) bool { return other.state.GetMemberId() == member.GetId() })
			if !known && !slices.Contains(lost, member.GetName()) {
				lost = append(lost, member.GetName())
			}
		}
	}
	slices.Sort(lost)
	return lost
}
