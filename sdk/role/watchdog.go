package role

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/proto/limits"

	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// CheckHealth implements rolev1.RoleServiceServer.
func (s *server) CheckHealth(ctx context.Context, _ *rolev1.CheckHealthRequest) (*rolev1.CheckHealthResponse, error) {
	i, err := s.running()
	if err != nil {
		return nil, err
	}
	if i.role.CheckHealth == nil {
		return &rolev1.CheckHealthResponse{}, nil
	}
	_, err = i.health.ask(ctx, i, "the role's CheckHealth", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, i.role.CheckHealth(ctx)
	})
	if err != nil {
		return nil, answerOf(ctx, err)
	}
	return &rolev1.CheckHealthResponse{}, nil
}

// GetMetrics implements rolev1.RoleServiceServer.
func (s *server) GetMetrics(ctx context.Context, _ *rolev1.GetMetricsRequest) (*rolev1.GetMetricsResponse, error) {
	i, err := s.running()
	if err != nil {
		return nil, err
	}
	if i.role.Metrics == nil {
		return &rolev1.GetMetricsResponse{}, nil
	}
	text, err := i.metrics.ask(ctx, i, "the role's Metrics", func(ctx context.Context) ([]byte, error) {
		var written bounded
		if err := i.role.Metrics(ctx, &written); err != nil {
			return nil, err
		}
		// A truncated text would pass for all metrics, so the error counts even if the role ignored it.
		return written.text.Bytes(), written.err
	})
	if err != nil {
		return nil, answerOf(ctx, err)
	}
	return &rolev1.GetMetricsResponse{Text: text}, nil
}

// answerOf is the answer to a call whose function failed. A gRPC status inside the role's error is not passed on: Unimplemented, for instance, would
// mean that the role has no such function.
func answerOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	return status.Error(codes.Unknown, limits.Cut(strings.ToValidUTF8(err.Error(), "\uFFFD"), limits.Reason))
}

// bounded keeps what is written to it, up to limits.Metrics.
type bounded struct {
	text bytes.Buffer
	err  error
}

// Write implements io.Writer.
func (b *bounded) Write(text []byte) (int, error) {
	if b.err == nil && b.text.Len()+len(text) > limits.Metrics {
		b.err = fmt.Errorf("the role's metrics exceed %d bytes", limits.Metrics)
	}
	if b.err != nil {
		return 0, b.err
	}
	return b.text.Write(text)
}
