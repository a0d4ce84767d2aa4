package door_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"text/tabwriter"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// api is all of etcd's services, as one caller reaches them.
type api struct {
	pb.KVClient
	pb.WatchClient
	pb.LeaseClient
	pb.AuthClient
	pb.ClusterClient
	pb.MaintenanceClient
	health
}

// health keeps its methods' names apart from etcd's.
type health struct{ healthpb.HealthClient }

func apiOf(connection grpc.ClientConnInterface) api {
	return api{
		pb.NewKVClient(connection), pb.NewWatchClient(connection), pb.NewLeaseClient(connection),
		pb.NewAuthClient(connection), pb.NewClusterClient(connection), pb.NewMaintenanceClient(connection),
		health{healthpb.NewHealthClient(connection)},
	}
}

// outcome is what a confined user is to get.
type outcome string

const (
	// own: allowed, since it concerns what is the user's own.
	own outcome = "allowed"
	// denied: etcd's own permission denied, by etcd or by the door.
	denied outcome = "refused"
	// absent: not offered, whatever it concerns.
	absent outcome = "not offered"
)

// TestConfinement calls every method of etcd's API, through the socket of an instance and without any namespace, and then the same as root in
// process.
func TestConfinement(t *testing.T) {
	n := start(t, storetest.Directory(t))
	n.ensure(t, "ant", "ants", "bee")
	instance := n.instance(t, "ant.1", "ant")
	n.open(t, instance)
	root := apiOf(dialRoot(t, n.store))
	confined := apiOf(storetest.Dial(t, instance.Socket).ActiveConnection())
	ids := leasesOf(n)
	rows := confinement(root, ids)

	tested := make(map[string]bool)
	var printed strings.Builder
	table := tabwriter.NewWriter(&printed, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "METHOD\tCALL\tCONFINED USER\tROOT")
	run := func(row row, who api) error {
		ctx := storetest.Context(t)
		prepare(t, n, root, ids)
		return row.call(ctx, who)
	}
	for _, row := range rows {
		tested[full(row.method)] = true
		t.Run(row.method+"/"+row.name, func(t *testing.T) {
			var got error
			// The call of root before may have changed the user's permissions: the door then closes the instance's socket and opens it again.
			storetest.Eventually(t, "an answer to the confined user", func() bool {
				got = run(row, confined)
				return status.Code(got) != codes.Unavailable
			})
			switch {
			case row.want == own:
				if got != nil {
					t.Errorf("the confined user got %v, want that it is allowed", got)
				}
			case row.want == absent:
				if status.Code(got) != codes.Unimplemented {
					t.Errorf("the confined user got %v, want that it is not offered", got)
				}
			case !isStatus(got, rpctypes.ErrGRPCPermissionDenied):
				t.Errorf("the confined user got %v, want etcd's %v", got, rpctypes.ErrGRPCPermissionDenied)
			}
			asRoot := run(row, root)
			if row.root == nil && asRoot != nil || row.root != nil && !isStatus(asRoot, row.root) {
				t.Errorf("root got %v, want %v", asRoot, row.root)
			}
			fmt.Fprintf(table, "%s\t%s\t%s: %s\t%s\n", row.method, row.name, row.want, short(got), short(asRoot))
		})
	}
	table.Flush()
	t.Logf("confinement:\n%s", printed.String())

	// What the server really offers, so that a method that a new etcd brings is looked at.
	server := v3rpc.Server(n.store.Server(), nil, nil)
	defer server.Stop()
	for name, service := range server.GetServiceInfo() {
		for _, method := range service.Methods {
			if method := name + "/" + method.Name; !tested[method] {
				t.Errorf("method %s is not in the table", method)
			}
		}
	}
}

// full is the whole name of a method of the table.
func full(method string) string {
	if strings.HasPrefix(method, "grpc.") {
		return method
	}
	return "etcdserverpb." + method
}

// isStatus compares as etcd's clients do: by code and text.
func isStatus(got, want error) bool {
	return got != nil && status.Code(got) == status.Code(want) && status.Convert(got).Message() == status.Convert(want).Message()
}

func short(err error) string {
	if err == nil {
		return "ok"
	}
	return strings.TrimPrefix(status.Convert(err).Message(), "etcdserver: ")
}

// rootCredentials take every connection for root's. There is nothing like them outside of tests.
type rootCredentials struct {
	credentials.TransportCredentials
}

func (rootCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return raw, store.Identity(store.RootUser), nil
}

// dialRoot reaches etcd as root over a connection in memory.
func dialRoot(t *testing.T, s *store.Store) *grpc.ClientConn {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	server := v3rpc.Server(s.Server(), nil, nil, grpc.Creds(rootCredentials{insecure.NewCredentials()}), grpc.WaitForHandlers(true))
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
	connection, err := grpc.NewClient("passthrough:root", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		connection.Close()
		server.Stop()
		<-served
	})
	return connection
}

// TestTokensCountForNothing sends what etcd takes for a proof elsewhere, the token among them by which etcd acts as root itself.
func TestTokensCountForNothing(t *testing.T) {
	n := start(t, storetest.Directory(t))
	n.ensure(t, "ant", "bee")
	instance := n.instance(t, "ant.1", "ant")
	n.open(t, instance)
	confined := apiOf(rawConnection(t, instance.Socket))
	internal, ok := metadata.FromIncomingContext(n.store.Server().AuthStore().WithRoot(storetest.Context(t)))
	if !ok || len(internal.Get("token")) != 1 {
		t.Fatalf("etcd gives itself no token: %v", internal)
	}
	for _, header := range []string{"token", "authorization"} {
		for _, value := range []string{"root", internal.Get("token")[0], "Bearer " + internal.Get("token")[0]} {
			ctx := metadata.AppendToOutgoingContext(storetest.Context(t), header, value)
			if _, err := confined.Range(ctx, &pb.RangeRequest{Key: []byte(foreignKey)}); !isStatus(err, rpctypes.ErrGRPCPermissionDenied) {
				t.Errorf("get with a %s: %v, want a refusal", header, err)
			}
			watch, err := confined.Watch(ctx)
			if err != nil {
				t.Fatal(err)
			}
			create := &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte(foreignKey)}}}
			if err := watch.Send(create); err != nil {
				t.Fatal(err)
			}
			if answer, err := watch.Recv(); err != nil || !answer.GetCanceled() {
				t.Errorf("watch with a %s: %v, %v, want a refusal", header, answer, err)
			}
		}
	}
}

// TestLeasesEnd shows that etcd, with authorization on and no root connection anywhere, still ends leases by itself.
func TestLeasesEnd(t *testing.T) {
	n := start(t, storetest.Directory(t))
	n.ensure(t, "ant")
	instance := n.instance(t, "ant.1", "ant")
	n.open(t, instance)
	confined := apiOf(rawConnection(t, instance.Socket))
	ctx := storetest.Context(t)
	key := []byte(consensusv1.UserPrefix("ant") + "fleeting")
	var put *pb.PutResponse
	for put == nil {
		lease, err := confined.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 1})
		if err != nil {
			t.Fatal(err)
		}
		// On a busy machine the lease may have ended by now.
		put, err = confined.Put(ctx, &pb.PutRequest{Key: key, Lease: lease.GetID()})
		if err != nil && !isStatus(err, rpctypes.ErrGRPCLeaseNotFound) {
			t.Fatal(err)
		}
	}
	watch, err := confined.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	create := &pb.WatchCreateRequest{Key: key, StartRevision: put.GetHeader().GetRevision() + 1}
	if err := watch.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create}}); err != nil {
		t.Fatal(err)
	}
	for {
		answer, err := watch.Recv()
		if err != nil {
			t.Fatalf("the key outlives its lease: %v", err)
		}
		if events := answer.GetEvents(); len(events) > 0 {
			if events[0].Type != mvccpb.Event_DELETE {
				t.Errorf("got %v, want the key's end", events[0])
			}
			return
		}
	}
}
