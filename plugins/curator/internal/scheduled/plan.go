package scheduled

import (
	"cmp"
	"crypto/x509"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/problem"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/proto/snapshot"
)

const (
	// attemptWithin is how long a node may take for one, and givenUpAfter after which another node is asked.
	attemptWithin = 40 * time.Minute
	givenUpAfter  = 45 * time.Minute
	// silentFor is how long a node that was asked may be silent, or without a member, before another one is asked.
	silentFor = 2 * time.Minute
	// againAfter is how soon after one that failed the next one is due, if the interval is not shorter.
	againAfter = 10 * time.Minute
	// lookEvery is how often the clock is looked at, which may be set meanwhile.
	lookEvery = time.Minute
)

// Good returns the newest good snapshot that the nodes of the cluster have; nil: there is none. One that the recovery key of now does not open, or of a CA that was retired, is none: it does not bring the
// cluster of now back.
func Good(state *store.State) (newest *clusterv1.StoredSnapshot) {
	recipient, signers := state.Demands().GetRecoveryRecipient(), Signers(state)
	for id, kept := range state.Snapshots {
		if state.Nodes[id] == nil {
			continue
		}
		for _, one := range kept.GetSnapshots() {
			if problem.OfSnapshot(one, recipient, signers) != "" {
				continue
			}
			if newest == nil || one.GetTask().GetNumber() > newest.GetTask().GetNumber() {
				newest = one
			}
		}
	}
	return newest
}

// Signers returns the keys of the CAs that the cluster trusts, as snapshots name them.
func Signers(state *store.State) (keys []string) {
	for _, der := range state.CA {
		if certificate, err := x509.ParseCertificate(der); err == nil {
			keys = append(keys, snapshot.ShowKey(certificate))
		}
	}
	return keys
}

func interval(schedule *clusterv1.SnapshotSchedule) time.Duration {
	return time.Duration(schedule.GetIntervalSeconds()) * time.Second
}

// passed reports whether so much time has passed since a moment of another clock, or of this one before it was set. One that lies further ahead than that is of a clock that was wrong, and has passed.
func passed(since *timestamppb.Timestamp, span time.Duration, now time.Time) bool {
	age := now.Sub(since.AsTime())
	return age >= span || age < -span
}

// Next returns the snapshot that is to be asked for now; nil: none is. Then again is when to look again; 0: when the state has changed.
func Next(state *store.State, now time.Time) (next *clusterv1.SnapshotTask, again time.Duration) {
	schedule, last := state.Demands().GetSnapshots(), state.SnapshotTask
	if schedule == nil {
		return nil, 0
	}
	fit := candidates(state)
	if last != nil {
		ended := state.Snapshots[last.GetNodeId()].GetEnded().GetNumber() >= last.GetNumber()
		waited := passed(last.GetAsked(), silentFor, now) && !slices.Contains(fit, last.GetNodeId()) || passed(last.GetAsked(), givenUpAfter, now)
		if !ended && !waited {
			return nil, lookEvery
		}
	}
	if good := Good(state); good != nil && !passed(good.GetTask().GetAsked(), interval(schedule), now) {
		return nil, lookEvery
	} else if last != nil && good.GetTask().GetNumber() < last.GetNumber() && !stored(state, last) && !passed(last.GetAsked(), min(againAfter, interval(schedule)), now) {
		return nil, lookEvery
	}
	node := choose(state, fit)
	if node == "" {
		return nil, lookEvery
	}
	return &clusterv1.SnapshotTask{Number: highest(state) + 1, NodeId: node, Asked: timestamppb.New(now)}, 0
}

// stored reports whether the snapshot of a task is there. If it does not count as good all the same, the recovery key or the CA was changed since, and another one need not wait as after a failure.
func stored(state *store.State, task *clusterv1.SnapshotTask) bool {
	return slices.ContainsFunc(state.Snapshots[task.GetNodeId()].GetSnapshots(), func(one *clusterv1.StoredSnapshot) bool { return one.GetTask().GetNumber() == task.GetNumber() })
}

// highest is the highest number that there is. A store that was begun again from a snapshot has an older task than nodes have snapshots, or have ended.
func highest(state *store.State) uint64 {
	number := state.SnapshotTask.GetNumber()
	for _, kept := range state.Snapshots {
		number = max(number, kept.GetEnded().GetNumber())
		for _, one := range kept.GetSnapshots() {
			number = max(number, one.GetTask().GetNumber())
		}
	}
	return number
}

// candidates are the nodes that run a curator and have a member that votes and answers, and whose data nobody doubts, sorted.
func candidates(state *store.State) []string {
	return slices.DeleteFunc(rules.Running(state, state, rules.CapabilityCluster), func(id string) bool {
		member := state.StoreMember(id)
		return member == nil || member.GetLearner() || !member.GetHealthy() || member.GetDamage() != ""
	})
}

// choose returns the node whose turn it is: the one that was asked longest ago, and never the leader if there is another; empty: there is none.
func choose(state *store.State, fit []string) string {
	if others := slices.DeleteFunc(slices.Clone(fit), func(id string) bool { return id == state.Store.GetLeaderNodeId() }); len(others) > 0 {
		fit = others
	}
	if len(fit) == 0 {
		return ""
	}
	turn := func(id string) uint64 {
		if id == state.SnapshotTask.GetNodeId() {
			return state.SnapshotTask.GetNumber() // whether it has ended or not
		}
		return state.Snapshots[id].GetEnded().GetNumber()
	}
	return slices.MinFunc(fit, func(a, b string) int { return cmp.Compare(turn(a), turn(b)) })
}

// Problem says why somebody has to look at the snapshots of a cluster; empty: nobody has.
func Problem(state *store.State, now time.Time) string {
	schedule := state.Demands().GetSnapshots()
	if schedule == nil {
		return ""
	}
	failure := ""
	var failed uint64
	for _, kept := range state.Snapshots {
		if number := kept.GetEnded().GetNumber(); kept.GetFailure() != "" && number > failed {
			failed, failure = number, "node "+kept.GetNodeId()+": "+kept.GetFailure()
		}
	}
	good := Good(state)
	if failed < good.GetTask().GetNumber() {
		failure = ""
	}
	return problem.OfSnapshots(interval(schedule), state.Demands().GetSnapshotsSince(), good.GetTask().GetAsked(), now, failure)
}
