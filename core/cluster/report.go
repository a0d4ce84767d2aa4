package cluster

import (
	"cmp"
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// report sends the status when it changed, as far as it fits and as soon as the pace allows, and whenever the curator is newly in reach, one call at a
// time: of the changes that come meanwhile only the newest is sent. Nothing is sent before the watch has delivered, which is when the node's record
// is known to exist.
func (s *session) report(ctx context.Context, made func()) error {
	statuses, streams := s.config.Status.Watch(), s.streams.Watch()
	var whole, newest, sent *clusterv1.NodeStatus
	room := limits.ReportedPublished // as the curator tells with each report
	stream := 0
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-statuses.Changed():
			if whole, _ = statuses.Latest(); whole != nil {
				newest = fit(whole, room)
			}
		case <-streams.Changed():
			stream, _ = streams.Latest()
			sent = nil
		case <-timer.C:
		}
		timer.Stop()
		if stream == 0 || newest == nil || (sent != nil && sameStatus(sent, newest)) {
			continue
		}
		if wait := s.pace.wait(time.Now(), sent, newest); wait > 0 {
			timer.Reset(wait)
			continue
		}
		s.pace.spend(time.Now(), sent, newest)
		call, cancel := context.WithTimeout(ctx, callTimeout)
		answer, err := s.api.ReportStatus(call, &clusterv1.ReportStatusRequest{Status: newest})
		cancel()
		if err != nil {
			if refused(err) {
				s.reporting.Set(explain(err))
			}
			return err
		}
		sent = newest
		if problem, _ := s.reporting.Get(); problem != "" {
			s.reporting.Set("")
		}
		made()
		if told := min(cmp.Or(int(answer.GetPublishedBytes()), limits.ReportedPublished), limits.ReportedPublished); told != room {
			room, newest = told, fit(whole, told)
			timer.Reset(0)
		}
	}
}

// refused reports whether a call failed for what it said, so that saying it again is of no use.
func refused(err error) bool {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.ResourceExhausted, codes.FailedPrecondition, codes.OutOfRange, codes.PermissionDenied, codes.Unimplemented:
		return true
	}
	return false
}

// sameStatus compares two statuses by what they say, whenever they say it.
func sameStatus(a, b *clusterv1.NodeStatus) bool {
	if !proto.Equal(ofNode(a), ofNode(b)) || len(a.GetInstances()) != len(b.GetInstances()) {
		return false
	}
	for i, instance := range a.GetInstances() {
		if !proto.Equal(instance, b.GetInstances()[i]) {
			return false
		}
	}
	return true
}

// ofNode returns the fields about the node itself, without the time of the report. A field that is missing here is never reported by itself.
func ofNode(status *clusterv1.NodeStatus) *clusterv1.NodeStatus {
	return &clusterv1.NodeStatus{
		NodeId: status.GetNodeId(), Addresses: status.GetAddresses(), ApiAddress: status.GetApiAddress(), Isolation: status.GetIsolation(),
		Volume: status.GetVolume(), Version: status.GetVersion(), Missing: status.GetMissing(), Storage: status.GetStorage(),
		Membership: status.GetMembership(), CaPins: status.GetCaPins(), Problem: status.GetProblem(),
	}
}
