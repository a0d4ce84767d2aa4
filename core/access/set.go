package access

import (
	"fmt"
	"os"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// set is the numbered set of instances with access. since says from which number on each instance has its present entry.
type set struct {
	coreStart int64
	request   *consensusv1.SetAccessRequest // nil before the first
	since     map[string]uint64
}

func newSet(coreStart time.Time) set {
	return set{coreStart: coreStart.UnixNano(), since: make(map[string]uint64)}
}

// replace makes the set of the candidates that are not refused and have a directory. It returns the set and whether it differs from the one before.
// The first one always does, even if empty: the store may have the set of an earlier core.
func (s *set) replace(candidates []*candidate, made directories) (*consensusv1.SetAccessRequest, bool) {
	var instances []*consensusv1.AccessInstance
	for _, c := range candidates {
		if entry := entryOf(c, made); entry != nil {
			instances = append(instances, entry)
		}
	}
	same := func(a, b *consensusv1.AccessInstance) bool { return proto.Equal(a, b) }
	if s.request != nil && slices.EqualFunc(s.request.GetInstances(), instances, same) {
		return s.request, false
	}
	before := make(map[string]*consensusv1.AccessInstance)
	for _, entry := range s.request.GetInstances() {
		before[entry.GetInstanceId()] = entry
	}
	number := s.request.GetNumber() + 1
	since := make(map[string]uint64, len(instances))
	for _, entry := range instances {
		id := entry.GetInstanceId()
		since[id] = number
		if earlier := before[id]; earlier != nil && same(earlier, entry) {
			since[id] = s.since[id]
		}
	}
	s.since = since
	s.request = &consensusv1.SetAccessRequest{CoreStart: s.coreStart, Number: number, Instances: instances}
	return s.request, true
}

// entryOf returns a candidate's entry in the set; nil if it has none.
func entryOf(c *candidate, made directories) *consensusv1.AccessInstance {
	if c.refusal != nil || !made.has(c.remit.Name) {
		return nil
	}
	entry := &consensusv1.AccessInstance{
		InstanceId:    c.remit.InstanceID,
		ConsensusUser: c.user,
		Socket:        made.socket(c.remit.Name),
		Uid:           c.remit.UID,
		// A role that starts from cache must live with stale reads and a read-only store anyway.
		WithoutQuorum: c.remit.Manifest.GetStartsFromCache(),
	}
	if c.remit.SharedUID {
		// The user ID is shared, so the store must check the process.
		if c.process == nil {
			return nil
		}
		// A provider with another user than the core's cannot see the core's processes, and need not: the core is root then, who can do anything to
		// the provider.
		if made.provider(c.remit.Name) == uint32(os.Geteuid()) {
			entry.ProcessGroup, entry.ProcessGroupStart = int64(c.process.PID), c.process.Start
		}
	}
	return entry
}

// answer returns OpenConsensus' answer to a candidate. A nil status means that the provider does not report.
func (s *set) answer(c *candidate, provided bool, status *consensusv1.StoreStatus, made directories) *hostv1.OpenConsensusResponse {
	unavailable := c.refusal
	if unavailable == nil {
		unavailable = s.wait(c, provided, status)
	}
	if unavailable != nil {
		return &hostv1.OpenConsensusResponse{State: &hostv1.OpenConsensusResponse_Unavailable{Unavailable: unavailable}}
	}
	return &hostv1.OpenConsensusResponse{State: &hostv1.OpenConsensusResponse_Open{Open: &hostv1.ConsensusOpen{
		Socket:        made.socket(c.remit.Name),
		ConsensusUser: c.user,
		Prefix:        consensusv1.UserPrefix(c.user),
	}}}
}

// wait says what a candidate with access still waits for; nil if it is open.
func (s *set) wait(c *candidate, provided bool, status *consensusv1.StoreStatus) *hostv1.ConsensusUnavailable {
	since, in := s.since[c.remit.InstanceID]
	switch {
	case !provided:
		return refuse(waiting, "the role that provides the consensus store is not running; it is started again")
	case !in:
		return refuse(waiting, "the node is about to give this instance access to the consensus store")
	case status == nil:
		return refuse(waiting, "the consensus store has been started and reports nothing yet")
	case status.GetCoreStart() != s.coreStart || status.GetAccessNumber() < since:
		return refuse(waiting, "the consensus store has not accepted this instance yet")
	}
	for _, reported := range status.GetAccess() {
		if reported.GetInstanceId() != c.remit.InstanceID {
			continue
		}
		switch reported.GetState() {
		case consensusv1.AccessState_ACCESS_STATE_OPEN:
			return nil
		case consensusv1.AccessState_ACCESS_STATE_FAILED:
			return refuse(waiting, fmt.Sprintf("the consensus store cannot serve this instance's socket: %s", reported.GetReason()))
		case consensusv1.AccessState_ACCESS_STATE_WAITING:
			return refuse(waiting, fmt.Sprintf("the consensus store is not ready for the user %s: %s", c.user, reported.GetReason()))
		}
	}
	return refuse(waiting, "the consensus store has not reported yet whether it serves this instance")
}
