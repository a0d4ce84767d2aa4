package hostapi_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/hostapi"
	"github.com/reeveproject/reeve/core/membership"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// TestInterceptorsSeeEveryCall: also one that is refused.
func TestInterceptorsSeeEveryCall(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	see := func(who, method string, err error) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, who+" "+method[strings.LastIndex(method, "/")+1:]+" "+status.Code(err).String())
	}
	unary := func(who string) grpc.UnaryServerInterceptor {
		return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			response, err := handler(ctx, request)
			see(who, info.FullMethod, err)
			return response, err
		}
	}
	n := newNode(t, func(config *hostapi.Config) {
		config.Unary = []grpc.UnaryServerInterceptor{unary("outer"), unary("inner")}
		config.Stream = []grpc.StreamServerInterceptor{
			func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
				see("before", info.FullMethod, nil)
				return handler(srv, stream)
			},
		}
	})
	n.membership.Set(membership.Status{State: membership.Home})
	// Two sockets: what belongs to one of them must not get into the other's.
	for _, name := range []string{"role.1", "role.2"} {
		seen = nil
		client := n.client(remitOf(name))
		_, err := client.ReadFile(within(t), &hostv1.ReadFileRequest{Path: "/etc/hosts"})
		mustRefuse(t, err, codes.PermissionDenied)
		stream, err := client.WatchMembership(within(t), &hostv1.WatchMembershipRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		if want := []string{"inner ReadFile PermissionDenied", "outer ReadFile PermissionDenied", "before WatchMembership OK"}; !slices.Equal(seen, want) {
			t.Errorf("%s: seen %q, and should be %q", name, seen, want)
		}
		mu.Unlock()
	}
}
