package nodeapi_test

import (
	"crypto/ed25519"
	"crypto/tls"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
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

func TestWhoMayCallWhat(t *testing.T) {
	a := serve(t)
	node, _ := a.identity.Get()
	ownerKey := a.owner
	foreign := newKey(t)
	other := serve(t) // of a foreign CA
	callers := []struct {
		name string
		conn *grpc.ClientConn
		is   clusterv1.Caller
	}{
		{"a local process of the core's user", a.local(), clusterv1.Caller_CALLER_LOCAL},
		{"the owner", a.remote(selfSigned(t, ownerKey)), clusterv1.Caller_CALLER_OWNER},
		{"a foreign key", a.remote(selfSigned(t, foreign)), 0},
		{"no certificate", a.remote(nil), 0},
		{"the node's own SVID", a.remote(node.SVID), 0},
		{"another node's SVID", a.remote(a.svid(foreign, "reeve-other")), 0},
		{"the owner's key in a certificate of the CA", a.remote(a.svid(ownerKey, "reeve-other")), 0},
		{"the owner of another cluster", a.remote(selfSigned(t, other.owner)), 0},
		{"a SVID of another cluster", a.remote(other.svid(foreign, "reeve-other")), 0},
	}
	methods := nodev1.File_reeve_node_v1_node_proto.Services().ByName("NodeService").Methods()
	for i := range methods.Len() {
		method := methods.Get(i)
		permission := proto.GetExtension(method.Options(), clusterv1.E_Permission).(*clusterv1.Permission)
		for _, caller := range callers {
			err := a.callEmpty(caller.conn, method)
			if slices.Contains(permission.GetCallers(), caller.is) {
				// What an empty message is answered differs; that it is answered by the RPC does not.
				if code := status.Code(err); code != codes.OK && code != codes.InvalidArgument {
					t.Errorf("%s by %s: %v", method.Name(), caller.name, err)
				}
				continue
			}
			// The gate behind the handshake would say Unauthenticated. What exactly the client hears of the handshake's end depends on whether
			// it was writing or reading then.
			if status.Code(err) != codes.Unavailable {
				t.Errorf("%s by %s is not refused at the handshake: %v", method.Name(), caller.name, err)
			}
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
