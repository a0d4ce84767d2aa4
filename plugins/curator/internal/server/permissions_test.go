package server_test

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
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

// TestPermissions calls every RPC of the cluster API that its descriptors know as everybody, so that a new RPC is in the table by itself. What is to come of
// it is what the RPC declares.
func TestPermissions(t *testing.T) {
	c := newCluster(t)
	c.announce()
	now := time.Now()
	own, err := ca.Load(t.Context(), store.New(store.Config{Client: c.client(), AnswerWithin: patience}))
	if err != nil {
		t.Fatal(err)
	}
	earlier := before(t, own, now.Add(-72*time.Hour))
	foreign, err := ca.Create(identity.TrustDomain(clusterID), now)
	if err != nil {
		t.Fatal(err)
	}
	svid := func(by *ca.Authority, key ed25519.PrivateKey, at time.Time) *tls.Certificate {
		chain, err := by.IssueNode(public(key), at)
		if err != nil {
			t.Fatal(err)
		}
		return certificate(key, chain)
	}
	roleSVID, err := own.IssueCurator(c.id, "lighthouse", now)
	if err != nil {
		t.Fatal(err)
	}
	stranger := newKey(t)
	decommissioned := c.secondNode()
	c.setState(identity.NodeID(public(decommissioned)), clusterv1.NodeState_NODE_STATE_DECOMMISSIONED)
	unapproved := c.secondNode()
	c.setState(identity.NodeID(public(unapproved)), clusterv1.NodeState_NODE_STATE_NEW)

	viewer, operator, second := c.addOperator("vera", roleViewer), c.addOperator("otto", roleOperator), c.addOperator("olga", roleOwner)
	revoked := c.addOperator("rita", roleOwner)
	firstAnna := c.addOperator("anna", roleOwner)
	beforeSession := firstAnna.login()
	revokedSession := revoked.login()
	for _, name := range []string{"rita", "anna"} {
		if _, err := c.asOwner().RevokeOperator(t.Context(), &clusterv1.RevokeOperatorRequest{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	c.addOperator("anna", roleOwner) // somebody else
	session := func(by *ca.Authority, session identity.Session, at time.Time) *tls.Certificate {
		key := newKey(t)
		chain, err := by.IssueSession(session, public(key), at, at.Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		return certificate(key, chain)
	}
	aWeek := now.Add(7 * 24 * time.Hour)
	ofOwner := identity.Session{ID: identity.OwnerKeyID(public(c.owner)), Ends: aWeek}
	ofOlga := identity.Session{Operator: "olga", ID: second.record.GetId(), Ends: aWeek}

	const (
		nobody  = clusterv1.Caller_CALLER_UNSPECIFIED
		isNode  = clusterv1.Caller_CALLER_NODE
		isOwner = clusterv1.Caller_CALLER_OWNER
		removed = clusterv1.Caller(-1)
	)
	strangers := 0
	for _, caller := range []struct {
		name        string
		certificate *tls.Certificate
		kind        clusterv1.Caller
		byKey       bool
	}{
		{"a self-signed certificate of a key that is not pinned", selfSigned(t, stranger), nobody, false},
		{"an SVID of a foreign CA with the same trust domain", svid(foreign, c.node, now), nobody, false},
		{"an SVID of the cluster for a node without a record", svid(own, stranger, now), nobody, false},
		{"an SVID of a role", roleSVID, nobody, false},
		{"an SVID that has ended", svid(earlier, c.node, now.Add(-48*time.Hour)), nobody, false},
		{"a node that was decommissioned", selfSigned(t, decommissioned), removed, false},
		{"a node that was decommissioned, by its SVID", svid(own, decommissioned, now), removed, false},
		{"a node that is not approved", selfSigned(t, unapproved), nobody, false},
		{"an owner's session of a foreign CA", session(foreign, ofOwner, now), nobody, false},
		{"an operator's session of a foreign CA", session(foreign, ofOlga, now), nobody, false},
		{"an owner's session whose certificate has ended", session(earlier, ofOwner, now.Add(-2*time.Hour)), nobody, false},
		{"an operator's session whose certificate has ended", session(earlier, ofOlga, now.Add(-2*time.Hour)), nobody, false},
		{"an operator's session that has ended", session(earlier, identity.Session{Operator: "olga", ID: ofOlga.ID, Ends: now.Add(-time.Minute)}, now.Add(-time.Hour)), nobody, false},
		{"a session of another owner key", session(own, identity.Session{ID: identity.OwnerKeyID(public(stranger)), Ends: aWeek}, now), nobody, false},
		{"an operator's ID as the owner", session(own, identity.Session{ID: ofOlga.ID, Ends: aWeek}, now), nobody, false},
		{"an operator whom nobody knows", session(own, identity.Session{Operator: "nemo", ID: ofOlga.ID, Ends: aWeek}, now), nobody, false},
		{"another operator's ID", session(own, identity.Session{Operator: "vera", ID: ofOlga.ID, Ends: aWeek}, now), nobody, false},
		{"the session of a revoked operator", revokedSession, nobody, false},
		{"the key of a revoked operator", selfSigned(t, revoked.key), nobody, false},
		{"the session of a revoked operator whose name another one has", beforeSession, nobody, false},
		{"a node by its SVID", svid(own, c.node, now), isNode, false},
		{"a node by its pinned key", selfSigned(t, c.node), isNode, false},
		{"the owner by its key", selfSigned(t, c.owner), isOwner, false},
		{"the owner by a session", c.ownerSession(), isOwner, false},
		{"an operator who is an owner, by a session", second.login(), isOwner, false},
		{"an operator by a session", operator.login(), clusterv1.Caller_CALLER_OPERATOR, false},
		{"a viewer by a session", viewer.login(), clusterv1.Caller_CALLER_VIEWER, false},
		{"an operator who is an owner, by its key", selfSigned(t, second.key), isOwner, true},
		{"an operator by its key", selfSigned(t, operator.key), clusterv1.Caller_CALLER_OPERATOR, true},
		{"a viewer by its key", selfSigned(t, viewer.key), clusterv1.Caller_CALLER_VIEWER, true},
	} {
		t.Run(caller.name, func(t *testing.T) {
			conn := c.dial(c.curator, caller.certificate)
			if caller.kind == nobody {
				strangers++
			}
			for i, rpc := range rpcs(t) {
				permission := proto.GetExtension(rpc.Options(), clusterv1.E_Permission).(*clusterv1.Permission)
				// A caller who is nobody is refused before it matters which RPC it is, unless that is for newcomers. So the first one calls all, and each later one another part.
				if caller.kind == nobody && strangers > 1 && i%strangersShare != strangers%strangersShare && permission.GetCallers()[0] != clusterv1.Caller_CALLER_NEWCOMER {
					continue
				}
				if caller.kind == nobody {
					conn = c.dial(c.curator, caller.certificate) // a stranger's is closed soon after the first refusal
				}
				err := call(t, conn, rpc)
				code := status.Code(err)
				if permission.GetCallers()[0] == clusterv1.Caller_CALLER_NEWCOMER {
					asNewcomer(t, rpc, caller.certificate, caller.kind == removed, err)
					continue
				}
				switch permitted := slices.Contains(permission.GetCallers(), caller.kind) && (permission.GetByKey() || !caller.byKey); {
				case caller.kind == removed:
					wantRemoved(t, err, identity.NodeID(public(decommissioned)), "decommissioned")
				case caller.kind == nobody && code != codes.Unauthenticated:
					t.Errorf("%s: %s, want %s", rpc.FullName(), code, codes.Unauthenticated)
				case caller.kind != nobody && !permitted && code != codes.PermissionDenied:
					t.Errorf("%s: %s, want %s", rpc.FullName(), code, codes.PermissionDenied)
				case permitted && slices.Contains([]codes.Code{codes.Unauthenticated, codes.PermissionDenied, codes.Unimplemented, codes.Unavailable, codes.Internal}, code):
					t.Errorf("%s: %s, and the caller is permitted", rpc.FullName(), code)
				}
			}
		})
	}
	t.Run("nobody at all", func(t *testing.T) {
		conn := c.dial(c.curator, nil)
		for _, rpc := range rpcs(t) {
			if code := status.Code(call(t, conn, rpc)); code != codes.Unavailable { // the handshake fails
				t.Errorf("%s: %s", rpc.FullName(), code)
			}
		}
	})
	t.Run("what is for the core alone", func(t *testing.T) {
		conn := c.dial(c.curator, selfSigned(t, c.owner))
		methods := clusterv1.File_reeve_cluster_v1_cluster_proto.Services().ByName("BootstrapService").Methods()
		for i := range methods.Len() {
			if code := status.Code(call(t, conn, methods.Get(i))); code != codes.Unimplemented {
				t.Errorf("%s is served to everybody: %s", methods.Get(i).FullName(), code)
			}
		}
	})
}

// asNewcomer checks the answer to an empty request of somebody who shows a certificate, to an RPC that is for newcomers. Who has shown a key was let in, whoever else
// that key is of, and is refused for what the key is not; anybody else is nobody.
func asNewcomer(t *testing.T, rpc protoreflect.MethodDescriptor, shown *tls.Certificate, removed bool, err error) {
	t.Helper()
	leaf, parseErr := x509.ParseCertificate(shown.Certificate[0])
	if parseErr != nil {
		t.Fatal(parseErr)
	}
	_, noKey := identity.PinnedKey(leaf)
	code := status.Code(err)
	switch byJoinKey := rpc.Name() == "Join"; {
	case noKey != nil:
		wantCode(t, err, codes.Unauthenticated, "self-signed")
	case removed && !byJoinKey:
		wantRemoved(t, err, identity.NodeID(leaf.PublicKey.(ed25519.PublicKey)), "decommissioned")
	case rpc.Name() == "Register" && code == codes.Unauthenticated:
		wantCode(t, err, codes.Unauthenticated, "ticket")
	case slices.Contains([]codes.Code{codes.Unauthenticated, codes.PermissionDenied, codes.Unimplemented, codes.Unavailable, codes.Internal}, code):
		t.Errorf("%s: %v, and whoever shows a key is permitted", rpc.FullName(), err)
	case byJoinKey && code != codes.NotFound && code != codes.ResourceExhausted:
		t.Errorf("%s with a key that is no join key: %v", rpc.FullName(), err)
	}
}

// TestDeclaredPermissions pins what the proto files declare: nodes change nothing but what is their own, viewers nothing at all, and operators
// neither who may do what nor which plugins there are.
func TestDeclaredPermissions(t *testing.T) {
	const (
		read  = "OWNER OPERATOR VIEWER audited"
		write = "OWNER OPERATOR audited"
	)
	want := map[string]string{
		"BootstrapService.Bootstrap": "CORE", "BootstrapService.ReplaceOwner": "CORE audited", "BootstrapService.Restore": "CORE audited",
		"NodeService.Watch": "NODE", "NodeService.ReportStatus": "NODE", "NodeService.Heartbeat": "NODE", "NodeService.KeepAlive": "NODE", "NodeService.IssueSVID": "NODE audited",
		"ManagementService.GetClusterInfo": read, "ManagementService.ListNodes": read, "ManagementService.GetNode": read, "ManagementService.WatchNode": read,
		"ManagementService.ListPlugins": read, "ManagementService.ListOperators": read, "ManagementService.ListAudit": read,
		"ManagementService.AddRole": write, "ManagementService.RemoveRole": write, "ManagementService.SetRoles": write,
		"ManagementService.AddPlugin": "OWNER audited", "ManagementService.AddOperator": "OWNER audited", "ManagementService.RevokeOperator": "OWNER audited",
		"ManagementService.ApprovePlugin": "OWNER audited", "ManagementService.SetGrants": "OWNER audited", "ManagementService.RemovePlugin": "OWNER audited",
		"ManagementService.AddPluginReport": "OWNER audited", "ManagementService.GetPluginReport": read,
		"ManagementService.GetPolicy": read, "ManagementService.SetPolicy": "OWNER audited",
		"ManagementService.ListSnapshots": read, "ManagementService.GetSnapshot": write,
		"ManagementService.StreamSnapshot": write, "ManagementService.StreamUnencryptedSnapshot": "OWNER audited",
		"ManagementService.Login":   "OWNER OPERATOR VIEWER by-key audited",
		"NodeService.IssueRoleSVID": "NODE audited", "ManagementService.ListCertificates": read, "ManagementService.RotateCA": "OWNER audited",
		"EnrolmentService.Register": "NEWCOMER audited", "EnrolmentService.Await": "NEWCOMER",
		"EnrolmentService.Commit": "NEWCOMER audited", "EnrolmentService.Join": "NEWCOMER audited",
		"ManagementService.CreateTicket": "OWNER audited", "ManagementService.ListTickets": read, "ManagementService.RevokeTicket": "OWNER audited",
		"ManagementService.ApproveNode": "OWNER audited", "ManagementService.AcceptNode": "OWNER audited", "ManagementService.SetLabels": write,
		"ManagementService.DrainNode": write, "ManagementService.DecommissionNode": "OWNER audited", "ManagementService.DeleteNode": "OWNER audited",
		"ManagementService.ReplaceStoreMember": "OWNER audited",
	}
	services := clusterv1.File_reeve_cluster_v1_cluster_proto.Services()
	for i := range services.Len() {
		for j := range services.Get(i).Methods().Len() {
			rpc := services.Get(i).Methods().Get(j)
			permission := proto.GetExtension(rpc.Options(), clusterv1.E_Permission).(*clusterv1.Permission)
			var declared []string
			for _, caller := range permission.GetCallers() {
				declared = append(declared, strings.TrimPrefix(caller.String(), "CALLER_"))
			}
			if permission.GetByKey() {
				declared = append(declared, "by-key")
			}
			if permission.GetAudited() {
				declared = append(declared, "audited")
			}
			name := string(services.Get(i).Name()) + "." + string(rpc.Name())
			if got := strings.Join(declared, " "); got != want[name] {
				t.Errorf("%s is for %s, want %q", name, got, want[name])
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
	unspecified := clusterv1.Caller_CALLER_UNSPECIFIED
	if _, err := auth.Declared(bootstrap, clusterv1.Caller_CALLER_NODE, unspecified); err == nil {
		t.Error("a server that cannot tell whom an RPC is for is accepted")
	}
	kind := clusterv1.Caller_CALLER_OWNER
	guard := auth.NewGuard(auth.GuardConfig{Authenticate: func(context.Context) (auth.Caller, error) {
		return auth.Caller{Kind: kind}, nil
	}})
	_, err := guard.Unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/a/b"}, func(context.Context, any) (any, error) {
		t.Error("a call came through before anything was enforced")
		return nil, nil
	})
	wantCode(t, err, codes.Unavailable)
	guard.Enforce(auth.Permissions{})
	_, err = guard.Unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/a/b"}, nil)
	wantCode(t, err, codes.PermissionDenied)
	// A caller whom nobody could tell is let in nowhere, whatever is declared.
	guard.Enforce(auth.Permissions{"/a/b": {Callers: []clusterv1.Caller{unspecified}, ByKey: true}})
	kind = unspecified
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
