package histories_test

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/proto/identity"
	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// access is a way to the cluster API, as the owner.
type access struct {
	// name is "curator 1", or "any curator".
	name string
	// failsOver says that it leads to whichever curator answers.
	failsOver bool
	conn      *grpc.ClientConn
	api       clusterv1.ManagementServiceClient
	resolver  *manual.Resolver

	mu        sync.Mutex
	addresses []string
}

// newAccess returns a way to curators at some addresses: to one alone, or to whichever answers.
func newAccess(t *testing.T, name string, cluster *nodev1.ClusterAccess, owner ed25519.PrivateKey, addresses ...string) *access {
	t.Helper()
	roots := x509.NewCertPool()
	for _, der := range cluster.GetCaCertificates() {
		certificate, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		roots.AddCert(certificate)
	}
	a := &access{name: name, failsOver: len(addresses) > 1, resolver: manual.NewBuilderWithScheme("curators"), addresses: addresses}
	a.resolver.InitialState(a.state())
	// As core/cluster and cli/target have it: who knows one curator goes to that one, who knows several goes to them all, and then what only reads is tried again.
	policy := []grpc.DialOption{grpc.WithDisableServiceConfig()}
	if a.failsOver {
		policy = []grpc.DialOption{grpc.WithDefaultServiceConfig(balance(t)), grpc.WithUnaryInterceptor(again)}
	}
	var err error
	a.conn, err = grpc.NewClient("curators:///", append(policy,
		grpc.WithResolvers(a.resolver),
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
			MinVersion: tls.VersionTLS13, RootCAs: roots, ServerName: identity.CuratorName(identity.TrustDomain(cluster.GetClusterId())),
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				certificate, err := identity.SelfSigned(owner, time.Now())
				return &certificate, err
			},
		})),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, Jitter: 0.3, MaxDelay: 500 * time.Millisecond},
			MinConnectTimeout: time.Second,
		}),
		grpc.WithStatsHandler(sendings{}),
		grpc.WithIdleTimeout(0),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(limits.Message)))...)
	if err != nil {
		t.Fatal(err)
	}
	a.conn.Connect()
	a.api = clusterv1.NewManagementServiceClient(a.conn)
	return a
}

// again makes a call again if a curator says that it has not begun with it, as the command line does.
func again(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	for made := 1; ; made++ {
		err := invoke(ctx, method, request, reply, conn, options...)
		said := status.Convert(err)
		unbegun := said.Code() == codes.Unavailable && slices.ContainsFunc(said.Details(), func(detail any) bool { _, is := detail.(*errdetails.RetryInfo); return is })
		if !unbegun || made == 4 {
			return err
		}
		select {
		case <-time.After(time.Duration(made) * waitPace):
		case <-ctx.Done():
			return err
		}
	}
}

// balance is the service configuration of the command line.
func balance(t *testing.T) string {
	t.Helper()
	service := clusterv1.ManagementService_ServiceDesc
	var reads []map[string]string
	for _, method := range service.Methods {
		if strings.HasPrefix(method.MethodName, "Get") || strings.HasPrefix(method.MethodName, "List") {
			reads = append(reads, map[string]string{"service": service.ServiceName, "method": method.MethodName})
		}
	}
	config, err := json.Marshal(map[string]any{
		"loadBalancingConfig": []any{map[string]any{"round_robin": struct{}{}}},
		"methodConfig": []any{map[string]any{"name": reads, "retryPolicy": map[string]any{
			"maxAttempts": 4, "initialBackoff": "0.05s", "maxBackoff": "0.5s", "backoffMultiplier": 2, "retryableStatusCodes": []string{"UNAVAILABLE"},
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(config)
}

// sending is told whether a call has left this process. One that has not had no effect.
type sending struct{ sent atomic.Bool }

type sendingKey struct{}

func withSending(ctx context.Context) (context.Context, *sending) {
	s := new(sending)
	return context.WithValue(ctx, sendingKey{}, s), s
}

// sendings sees the calls of a connection go out.
type sendings struct{}

func (sendings) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (sendings) HandleRPC(ctx context.Context, event stats.RPCStats) {
	if _, ok := event.(*stats.OutHeader); ok {
		if s, ok := ctx.Value(sendingKey{}).(*sending); ok {
			s.sent.Store(true)
		}
	}
}

func (sendings) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (sendings) HandleConn(context.Context, stats.ConnStats) {}

// follow sends a way to where the curators of some nodes are, until the context ends; following counts the goroutines. A curator that has gone is looked for where it was
// until its node knows where the next one serves.
func (a *access) follow(ctx context.Context, following *sync.WaitGroup, nodes ...*node) {
	for i, node := range nodes {
		following.Go(func() {
			for watcher := node.status.Watch(); ; {
				status, err := watcher.Next(ctx)
				if err != nil {
					return
				}
				a.send(i, address(status))
			}
		})
	}
}

// send says that one of the curators is at an address.
func (a *access) send(curator int, address string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if address == "" || a.addresses[curator] == address {
		return
	}
	a.addresses[curator] = address
	a.resolver.UpdateState(a.state())
}

// known is where the curators are.
func (a *access) known() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.addresses)
}

func (a *access) state() (state resolver.State) {
	for _, address := range a.addresses {
		state.Addresses = append(state.Addresses, resolver.Address{Addr: address})
	}
	return state
}
