package cluster

import (
	"context"

	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// report sends the status whenever it changed, and whenever the curator is newly in reach, one call at a time: of the changes that come
// while one is on its way only the newest is sent. Nothing is sent before the watch has delivered, which is when the node's record
// is known to exist.
func (s *session) report(ctx context.Context, made func()) error {
	statuses, streams := s.config.Status.Watch(), s.streams.Watch()
	var newest, sent *clusterv1.NodeStatus
	stream := 0
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-statuses.Changed():
			refresh(ctx, statuses, &newest)
		case <-streams.Changed():
			refresh(ctx, streams, &stream)
			sent = nil
		}
		if stream == 0 || newest == nil || (sent != nil && sameStatus(sent, newest)) {
			continue
		}
		call, cancel := context.WithTimeout(ctx, callTimeout)
		_, err := s.api.ReportStatus(call, &clusterv1.ReportStatusRequest{Status: newest})
		cancel()
		if err != nil {
			return err
		}
		sent = newest
		made()
	}
}

// sameStatus compares two statuses by what they say, whenever they say it.
func sameStatus(a, b *clusterv1.NodeStatus) bool {
	x, y := proto.CloneOf(a), proto.CloneOf(b)
	x.Reported, y.Reported = nil, nil
	return proto.Equal(x, y)
}
