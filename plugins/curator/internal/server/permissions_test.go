package server_test

import (
	"context"
	"crypto/tls"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/reeveproject/reeve/plugins/curator/internal/auth"
	"github.com/reeveproject/reeve/plugins/curator/internal/ca"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

func contains(s, text string) bool { return strings.Contains(s, text) }

// TestPermissions calls every RPC of the cluster API that its descriptors know as everybody, so that a new RPC is in the table by itself.
func TestPermissions(t *testing.T) {
	c := newCluster(t)
	foreign, err := ca.Create(identity.TrustDomain(clusterID), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	foreignSVID, err := foreign.IssueNode(public(c.node), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	own, err := ca.Load(t.Context(), store.New(store.Config{Client: c.client()}))
	if err != nil {
		t.Fatal(err)
	}
	issue := func(age time.Duration) *tls.Certificate {
		chain, err := own.IssueNode(public(c.node), time.Now().Add(-age))
		if err != nil {
			t.Fatal(err)
		}
		return certificate(c.node, chain)
	}
	roleSVID, err := own.IssueCurator(c.id, "lighthouse", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	stranger := newKey(t)
	strangerSVID, err := own.IssueNode(public(stranger), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	decommissioned := c.secondNode()
	c.setState(identity.NodeID(public(decommissioned)), clusterv1.NodeState_NODE_STATE_DECOMMISSIONED)
	unapproved := c.secondNode()
	c.setState(identity.NodeID(public(unapproved)), clusterv1.NodeState_NODE_STATE_NEW)

	const nobody = clusterv1.Caller_CALLER_UNSPECIFIED
	for _, caller := range []struct {
		name        string
		certificate *tls.Certificate
		kind        clusterv1.Caller
		// refusal is the code for those who are nobody.
		refusal codes.Code
	}{
		{"nobody", nil, nobody, codes.Unavailable}, // the handshake fails
		{"a self-signed certificate of a key that is not pinned", selfSigned(t, stranger), nobody, codes.Unauthenticated},
		{"an SVID of a foreign CA with the same trust domain", certificate(c.node, foreignSVID), nobody, codes.Unauthenticated},
		{"an SVID of the cluster for a node without a record", certificate(stranger, strangerSVID), nobody, codes.Unauthenticated},
		{"an SVID of a role", roleSVID, nobody, codes.Unauthenticated},
		{"an SVID that has ended", issue(48 * time.Hour), nobody, codes.Unauthenticated},
		{"a node that was decommissioned", selfSigned(t, decommissioned), nobody, codes.Unauthenticated},
		{"a node that is not approved", selfSigned(t, unapproved), nobody, codes.Unauthenticated},
		{"a node by its SVID", issue(0), clusterv1.Caller_CALLER_NODE, 0},
		{"a node by its pinned key", selfSigned(t, c.node), clusterv1.Caller_CALLER_NODE, 0},
		{"the owner", selfSigned(t, c.owner), clusterv1.Caller_CALLER_OWNER, 0},
	} {
		t.Run(caller.name, func(t *testing.T) {
			conn := c.dial(c.curator, caller.certificate)
			for _, rpc := range rpcs(t) {
				callers := proto.GetExtension(rpc.Options(), clusterv1.E_Permission).(*clusterv1.Permission).GetCallers()
				code := status.Code(call(t, conn, rpc))
				switch {
				case caller.kind == nobody:
					if code != caller.refusal {
						t.Errorf("%s: %s, want %s", rpc.FullName(), code, caller.refusal)
					}
				case slices.Contains(callers, caller.kind):
					if code == codes.Unauthenticated || code == codes.PermissionDenied || code == codes.Unimplemented || code == codes.Unavailable {
						t.Errorf("%s: %s, and the caller is permitted", rpc.FullName(), code)
					}
				case code != codes.PermissionDenied:
					t.Errorf("%s: %s, want %s", rpc.FullName(), code, codes.PermissionDenied)
				}
			}
		})
	}
}

// TestDeclaredPermissions pins what the proto files declare: nodes change nothing but what is their own.
func TestDeclaredPermissions(t *testing.T) {
	want := map[protoreflect.Name]clusterv1.Caller{
		"BootstrapService": clusterv1.Caller_CALLER_CORE, "NodeService": clusterv1.Caller_CALLER_NODE, "ManagementService": clusterv1.Caller_CALLER_OWNER,
	}
	services := clusterv1.File_reeve_cluster_v1_cluster_proto.Services()
	for i := range services.Len() {
		for j := range services.Get(i).Methods().Len() {
			rpc := services.Get(i).Methods().Get(j)
			callers := proto.GetExtension(rpc.Options(), clusterv1.E_Permission).(*clusterv1.Permission).GetCallers()
			if !slices.Equal(callers, []clusterv1.Caller{want[services.Get(i).Name()]}) {
				t.Errorf("%s is for %v", rpc.FullName(), callers)
			}
		}
	}
}

// A server with an RPC that declares nobody, or a caller whom the server cannot tell, does not start.
func TestMissingPermission(t *testing.T) {
	if _, err := auth.Declared(map[string]grpc.ServiceInfo{healthv1.Health_ServiceDesc.ServiceName: {}}, clusterv1.Caller_CALLER_NODE); err == nil {
		t.Error("RPCs without the option are accepted")
	}
	bootstrap := map[string]grpc.ServiceInfo{clusterv1.BootstrapService_ServiceDesc.ServiceName: {}}
	if _, err := auth.Declared(bootstrap, clusterv1.Caller_CALLER_NODE, clusterv1.Caller_CALLER_OWNER); err == nil {
		t.Error("an RPC for the core is accepted on a server that cannot tell it")
	}
	guard := auth.NewGuard(func(context.Context) (auth.Caller, error) {
		return auth.Caller{Kind: clusterv1.Caller_CALLER_OWNER}, nil
	})
	_, err := guard.Unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/a/b"}, func(context.Context, any) (any, error) {
		t.Error("a call came through before anything was enforced")
		return nil, nil
	})
	wantCode(t, err, codes.Unavailable)
	guard.Enforce(auth.Permissions{})
	_, err = guard.Unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/a/b"}, nil)
	wantCode(t, err, codes.PermissionDenied)
}

// rpcs returns all RPCs of the services that are served over TCP.
func rpcs(t *testing.T) []protoreflect.MethodDescriptor {
	var rpcs []protoreflect.MethodDescriptor
	services := clusterv1.File_reeve_cluster_v1_cluster_proto.Services()
	for i := range services.Len() {
		if services.Get(i).Name() == "BootstrapService" {
			continue
		}
		for j := range services.Get(i).Methods().Len() {
			rpcs = append(rpcs, services.Get(i).Methods().Get(j))
		}
	}
	if len(rpcs) < 10 {
		t.Fatalf("only %d RPCs were found", len(rpcs))
	}
	return rpcs
}

// call calls an RPC with an empty request, and returns the error of its first answer.
func call(t *testing.T, conn *grpc.ClientConn, rpc protoreflect.MethodDescriptor) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	name := "/" + string(rpc.Parent().FullName()) + "/" + string(rpc.Name())
	request, response := dynamicpb.NewMessage(rpc.Input()), dynamicpb.NewMessage(rpc.Output())
	if !rpc.IsStreamingServer() {
		return conn.Invoke(ctx, name, request, response)
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, name)
	if err != nil {
		return err
	}
	if err := stream.SendMsg(request); err != nil {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	return stream.RecvMsg(response)
}
