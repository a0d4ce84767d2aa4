package nodeapi_test

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	names "github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// callEmpty calls an RPC, whatever its shape, with one empty message (a client stream: with none), and returns how the first answer came.
func (a *api) callEmpty(conn *grpc.ClientConn, method protoreflect.MethodDescriptor) error {
	a.t.Helper()
	name := "/" + string(method.Parent().FullName()) + "/" + string(method.Name())
	shape := &grpc.StreamDesc{StreamName: string(method.Name()), ServerStreams: true, ClientStreams: true}
	stream, err := conn.NewStream(a.context(), shape, name)
	if err != nil {
		return err
	}
	if !method.IsStreamingClient() {
		// An error of Send is told by Recv.
		_ = stream.SendMsg(dynamicpb.NewMessage(method.Input()))
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	return stream.RecvMsg(dynamicpb.NewMessage(method.Output()))
}

// Every RPC that there is by everybody that there is: who is permitted to is what the RPC declares.
func TestWhoMayCallWhat(t *testing.T) {
	a := serve(t)
	visitors := a.visitors()
	tried := map[clusterv1.Caller]bool{}
	methods := nodev1.File_reeve_node_v1_node_proto.Services().ByName("NodeService").Methods()
	if methods.Len() != len(nodev1.NodeService_ServiceDesc.Methods)+len(nodev1.NodeService_ServiceDesc.Streams) {
		t.Fatalf("%d methods", methods.Len())
	}
	for i := range methods.Len() {
		method := methods.Get(i)
		permission := proto.GetExtension(method.Options(), clusterv1.E_Permission).(*clusterv1.Permission)
		for _, visitor := range visitors {
			err := a.callEmpty(visitor.conn, method)
			tried[visitor.is] = true
			switch code := status.Code(err); {
			case visitor.refused != codes.OK:
				// What exactly the client hears of the handshake's end depends on whether it was writing or reading then.
				if code != visitor.refused || !strings.Contains(err.Error(), visitor.says) {
					t.Errorf("%s by %s is refused by %v", method.Name(), visitor.name, err)
				}
			case slices.Contains(permission.GetCallers(), visitor.is):
				// What an empty message is answered differs; that it is answered by the RPC does not.
				if code != codes.OK && code != codes.InvalidArgument {
					t.Errorf("%s by %s: %v", method.Name(), visitor.name, err)
				}
			default:
				if code != codes.PermissionDenied || !strings.Contains(err.Error(), string(method.Name())+" is not for ") {
					t.Errorf("%s by %s is not refused: %v", method.Name(), visitor.name, err)
				}
			}
		}
		for _, kind := range permission.GetCallers() {
			if !tried[kind] {
				t.Errorf("%s is for %v, as whom nobody tried", method.Name(), kind)
			}
		}
	}
}

// Before the cluster has said who its operators are, they are not let in, and neither does the owner need it.
func TestOperatorsAreNotKnownYet(t *testing.T) {
	a := serve(t)
	ask := func(certificate *tls.Certificate) error {
		_, err := nodev1.NewNodeServiceClient(a.remote(certificate)).GetStatus(a.context(), &nodev1.GetStatusRequest{})
		return err
	}
	if err := ask(a.operator("alice", aliceID)); status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "try again") {
		t.Errorf("an operator: %v", err)
	}
	owner := names.Session{ID: names.OwnerKeyID(a.owner.Public().(ed25519.PublicKey)), Ends: time.Now().Add(time.Minute)}
	if err := ask(a.holder(owner, owner.Ends)); err != nil {
		t.Errorf("the owner: %v", err)
	}
	a.everybody()
	if err := ask(a.operator("alice", aliceID)); err != nil {
		t.Errorf("an operator, then: %v", err)
	}
}

// A revoked operator is refused with the next call, on the same connection, and the streams end; those of others do not.
func TestARevokedOperatorLosesEverything(t *testing.T) {
	a := serve(t)
	operators := a.everybody()
	alice := nodev1.NewNodeServiceClient(a.remote(a.operator("alice", aliceID)))
	bob := nodev1.NewNodeServiceClient(a.remote(a.operator("bob", bobID)))
	local := a.client()
	streams := map[string]grpc.ServerStreamingClient[nodev1.WatchStatusResponse]{}
	for name, client := range map[string]nodev1.NodeServiceClient{"alice": alice, "bob": bob, "local": local} {
		stream, err := client.WatchStatus(a.context(), &nodev1.WatchStatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
		streams[name] = stream
	}
	followed, err := alice.WatchEvents(a.context(), &nodev1.WatchEventsRequest{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := followed.Recv(); err != nil {
		t.Fatal(err)
	}
	a.operators.Set(operators[1:])
	for name, stream := range map[string]grpc.ClientStream{"status": streams["alice"], "events": followed} {
		if err := stream.RecvMsg(&nodev1.WatchStatusResponse{}); status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "operator alice") {
			t.Errorf("the stream of the %s ends with %v", name, err)
		}
	}
	if _, err := alice.GetStatus(a.context(), &nodev1.GetStatusRequest{}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("the next call: %v", err)
	}
	a.status.Set(&nodev1.Status{NodeId: "reeve-2"})
	for _, name := range []string{"bob", "local"} {
		if response, err := streams[name].Recv(); err != nil || response.GetStatus().GetNodeId() != "reeve-2" {
			t.Errorf("the stream of %s: %v, %v", name, response, err)
		}
	}
}

// An operator whose role no longer allows it loses a stream that it sends on, too.
func TestAStreamThatIsSentOnEnds(t *testing.T) {
	a := serve(t)
	operators := a.everybody()
	began, cut := make(chan struct{}), make(chan struct{})
	a.imports(func(ctx context.Context, r io.Reader) (string, *rolev1.Manifest, error) {
		if _, err := r.Read(make([]byte, 1)); err != nil {
			t.Error(err)
		}
		close(began)
		<-ctx.Done()
		close(cut)
		_, err := io.Copy(io.Discard, r)
		if err == nil {
			t.Error("what was sent afterwards is read")
		}
		return "", nil, err
	})
	stream, err := nodev1.NewNodeServiceClient(a.remote(a.operator("caro", caroID))).ImportPlugin(a.context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&nodev1.ImportPluginRequest{Data: []byte("E")}); err != nil {
		t.Fatal(err)
	}
	<-began
	changed := slices.Clone(operators)
	changed[2] = record("caro", caroID, clusterv1.OperatorRole_OPERATOR_ROLE_OPERATOR)
	a.operators.Set(changed)
	<-cut
	for err == nil {
		err = stream.Send(&nodev1.ImportPluginRequest{Data: []byte("LF")})
	}
	if _, err := stream.CloseAndRecv(); status.Code(err) != codes.PermissionDenied {
		t.Errorf("the import ends with %v", err)
	}
}

// watchInSession begins a stream of bob's whose certificate runs out half an hour before the session does, which it returns the end of.
func (a *api) watchInSession() (stream grpc.ServerStreamingClient[nodev1.WatchStatusResponse], ends time.Time) {
	a.t.Helper()
	a.everybody()
	ends = time.Unix(time.Now().Unix()+3600, 0)
	certificate := a.holder(names.Session{Operator: "bob", ID: bobID, Ends: ends}, ends.Add(-30*time.Minute))
	stream, err := nodev1.NewNodeServiceClient(a.remote(certificate)).WatchStatus(a.context(), &nodev1.WatchStatusRequest{})
	if err != nil {
		a.t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		a.t.Fatal(err)
	}
	return stream, ends
}

// setClock sets the node's clock to a second before the session of the only stream ends, and returns when the stream has looked at it and waits by it for that
// end, or when that has come.
func (a *api) setClock(ends time.Time) {
	a.ahead.Store(int64(time.Until(ends.Add(-time.Second))))
	seen := a.asked.Load()
	a.everybody()
	for a.asked.Load() < seen+2 && a.now().Before(ends) { // whether the session has ended, and how long it goes on
		runtime.Gosched()
	}
}

func TestAStreamEndsWithItsSessionAndNotWithItsCertificate(t *testing.T) {
	a := serve(t)
	stream, ends := a.watchInSession()
	a.setClock(ends) // the certificate has run out
	_, err := stream.Recv()
	if status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "reeve login") || a.now().Before(ends) {
		t.Errorf("at %v it ends with %v", a.now(), err)
	}
}

// A stream ends with its session by the clock, also if the clock was set back meanwhile.
func TestAStreamEndsWithItsSessionWhenTheClockWasSet(t *testing.T) {
	a := serve(t)
	for late := true; late; {
		a.ahead.Store(0)
		stream, ends := a.watchInSession()
		a.setClock(ends)
		a.ahead.Add(-int64(time.Second))
		// The session may have ended before the clock was set back.
		late = !a.now().Add(time.Second).Before(ends)
		if _, err := stream.Recv(); status.Code(err) != codes.Unauthenticated || !late && a.now().Before(ends) {
			t.Errorf("at %v it ends with %v", a.now(), err)
		}
	}
}

func TestStreamsOfAnOwnerOfThePastEnd(t *testing.T) {
	a := serve(t)
	session := names.Session{ID: names.OwnerKeyID(a.owner.Public().(ed25519.PublicKey)), Ends: time.Now().Add(time.Minute)}
	var streams []grpc.ServerStreamingClient[nodev1.WatchStatusResponse]
	for _, certificate := range []*tls.Certificate{selfSigned(t, a.owner), a.holder(session, session.Ends)} {
		stream, err := nodev1.NewNodeServiceClient(a.remote(certificate)).WatchStatus(a.context(), &nodev1.WatchStatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
		streams = append(streams, stream)
	}
	member, _ := a.identity.Get()
	id := *member
	id.Owner = newKey(t).Public().(ed25519.PublicKey)
	a.identity.Set(&id)
	for _, stream := range streams {
		if _, err := stream.Recv(); status.Code(err) != codes.Unauthenticated {
			t.Errorf("a stream ends with %v", err)
		}
	}
}

func TestNobodyIsAnsweredBeforeTheNodeIsAMember(t *testing.T) {
	a := serve(t)
	member, _ := a.identity.Get()
	for name, lacks := range map[string]func() *tls.Certificate{
		"no SVID": func() *tls.Certificate {
			id := *member
			id.SVID = nil
			a.identity.Set(&id)
			return selfSigned(t, a.owner)
		},
		"no owner": func() *tls.Certificate {
			id := *member
			id.Owner = nil
			a.identity.Set(&id)
			return selfSigned(t, a.owner)
		},
	} {
		certificate := lacks()
		_, err := nodev1.NewNodeServiceClient(a.remote(certificate)).GetStatus(a.context(), &nodev1.GetStatusRequest{})
		if status.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := a.client().GetStatus(a.context(), &nodev1.GetStatusRequest{}); err != nil {
			t.Errorf("%s: on the socket: %v", name, err)
		}
		a.identity.Set(member)
		if _, err := nodev1.NewNodeServiceClient(a.remote(certificate)).GetStatus(a.context(), &nodev1.GetStatusRequest{}); err != nil {
			t.Errorf("then with it: %v", err)
		}
	}
}

func TestAnOwnerOfThePastIsRefused(t *testing.T) {
	a := serve(t)
	old := nodev1.NewNodeServiceClient(a.remote(selfSigned(t, a.owner)))
	if _, err := old.GetStatus(a.context(), &nodev1.GetStatusRequest{}); err != nil {
		t.Fatal(err)
	}
	successor := newKey(t)
	member, _ := a.identity.Get()
	id := *member
	id.Owner = successor.Public().(ed25519.PublicKey)
	a.identity.Set(&id)
	if _, err := old.GetStatus(a.context(), &nodev1.GetStatusRequest{}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("on a connection from before: %v", err)
	}
	if _, err := nodev1.NewNodeServiceClient(a.remote(selfSigned(t, a.owner))).GetStatus(a.context(), &nodev1.GetStatusRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("on a new connection: %v", err)
	}
	if _, err := nodev1.NewNodeServiceClient(a.remote(selfSigned(t, successor))).GetStatus(a.context(), &nodev1.GetStatusRequest{}); err != nil {
		t.Errorf("the successor: %v", err)
	}
}

func TestOldTLSIsRefused(t *testing.T) {
	a := serve(t)
	conn, err := tls.Dial("tcp", a.server.Address(), &tls.Config{
		InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*selfSigned(t, a.owner)},
	})
	if err == nil {
		conn.Close()
		t.Fatal("TLS 1.2 was accepted")
	}
	if !strings.Contains(err.Error(), "protocol version") {
		t.Errorf("the error is %v", err)
	}
}
