package cluster

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// streamer is a curator that begins streams of heartbeats, and answers each heartbeat after a time.
type streamer struct {
	clusterv1.NodeServiceClient
	streams []*stream
	takes   time.Duration
}

type stream struct {
	grpc.BidiStreamingClient[clusterv1.KeepAliveRequest, clusterv1.KeepAliveResponse]
	of    *streamer
	ctx   context.Context
	ended bool
}

func (s *streamer) KeepAlive(ctx context.Context, _ ...grpc.CallOption) (grpc.BidiStreamingClient[clusterv1.KeepAliveRequest, clusterv1.KeepAliveResponse], error) {
	began := &stream{of: s, ctx: ctx}
	s.streams = append(s.streams, began)
	return began, nil
}

func (s *stream) Send(*clusterv1.KeepAliveRequest) error {
	if s.ended || s.ctx.Err() != nil {
		return io.EOF
	}
	return nil
}

func (s *stream) Recv() (*clusterv1.KeepAliveResponse, error) {
	switch {
	case s.ended:
		return nil, status.Error(codes.Unavailable, "the connection has its age")
	case s.ctx.Err() != nil:
		return nil, status.FromContextError(s.ctx.Err()).Err()
	}
	time.Sleep(s.of.takes)
	return &clusterv1.KeepAliveResponse{TtlSeconds: 9}, nil
}

// TestHeartbeatsOnAnotherStream has a stream end that is no sign of a curator in trouble: the next heartbeat goes on another.
func TestHeartbeatsOnAnotherStream(t *testing.T) {
	for name, ends := range map[string]func(*streamer){
		"since the connection has its age":                       func(s *streamer) { s.streams[0].ended = true },
		"since the time was over just before a good answer came": func(s *streamer) { s.takes = time.Second + 1 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := new(streamer)
				b := &beats{api: s}
				defer b.close()
				send := func() {
					t.Helper()
					if response, err := b.send(t.Context(), time.Second); err != nil || response.GetTtlSeconds() != 9 {
						t.Errorf("%v, %v", response, err)
					}
					synctest.Wait()
				}
				send()
				ends(s)
				send()
				s.takes = 0
				send()
				send()
				if len(s.streams) != 2 {
					t.Errorf("%d streams", len(s.streams))
				}
			})
		})
	}
}
