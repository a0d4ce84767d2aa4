package nodeapi

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/identity"
	names "github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/event"
	"github.com/reeveproject/reeve/sdk/peercred"
)

func TestAnRPCWithoutPermissionIsRefused(t *testing.T) {
	server := grpc.NewServer()
	nodev1.RegisterNodeServiceServer(server, nodev1.UnimplementedNodeServiceServer{})
	if _, err := permissions(server.GetServiceInfo()); err != nil {
		t.Fatalf("the API itself: %v", err)
	}
	// The services of the role protocol declare no permission.
	rolev1.RegisterRoleServiceServer(server, rolev1.UnimplementedRoleServiceServer{})
	_, err := permissions(server.GetServiceInfo())
	if err == nil || !strings.Contains(err.Error(), "/reeve.role.v1.RoleService/Describe") || !strings.Contains(err.Error(), "/reeve.role.v1.RoleService/Stop") {
		t.Errorf("the error is %v, and does not name the RPCs", err)
	}
}

func TestAnRPCForCallersThatANodeCannotTellIsRefused(t *testing.T) {
	server := grpc.NewServer()
	clusterv1.RegisterNodeServiceServer(server, clusterv1.UnimplementedNodeServiceServer{})
	clusterv1.RegisterBootstrapServiceServer(server, clusterv1.UnimplementedBootstrapServiceServer{})
	clusterv1.RegisterManagementServiceServer(server, clusterv1.UnimplementedManagementServiceServer{})
	_, err := permissions(server.GetServiceInfo())
	if err == nil {
		t.Fatal("they are served")
	}
	for _, want := range []string{
		"/reeve.cluster.v1.BootstrapService/Bootstrap is for CALLER_CORE",
		"/reeve.cluster.v1.ManagementService/Login is for operators by their key",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in the error:\n%v", want, err)
		}
	}
}

// What no handshake lets through, the gate refuses, too.
func TestTheGateAdmitsWhomTheRPCNames(t *testing.T) {
	const forOwner, forLocal, forNobody = "/s/ForOwner", "/s/ForLocal", "/s/ForNobody"
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, stranger, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	g := gate{
		permitted: map[string]*clusterv1.Permission{
			forOwner: {Callers: []clusterv1.Caller{clusterv1.Caller_CALLER_OWNER}},
			forLocal: {Callers: []clusterv1.Caller{clusterv1.Caller_CALLER_LOCAL}},
		},
		callers: &callers{
			identity:  event.New(&identity.Identity{Owner: key.Public().(ed25519.PublicKey)}),
			operators: new(event.Value[[]*clusterv1.Operator]), directory: new(event.Value[*hostv1.Directory]), now: time.Now,
		},
	}
	shows := func(key ed25519.PrivateKey) credentials.TLSInfo {
		certificate, err := names.SelfSigned(key, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return credentials.TLSInfo{State: tls.ConnectionState{PeerCertificates: []*x509.Certificate{certificate.Leaf}}}
	}
	local := peercred.Info{Peer: peercred.Peer{UID: uint32(os.Geteuid())}}
	other := peercred.Info{Peer: peercred.Peer{UID: uint32(os.Geteuid()) + 1}}
	for _, test := range []struct {
		name   string
		proof  credentials.AuthInfo
		method string
		want   codes.Code
	}{
		{"local", local, forLocal, codes.OK},
		{"local", local, forOwner, codes.PermissionDenied},
		{"local", local, forNobody, codes.PermissionDenied},
		{"owner", shows(key), forOwner, codes.OK},
		{"owner", shows(key), forLocal, codes.PermissionDenied},
		{"owner", shows(key), forNobody, codes.PermissionDenied},
		{"foreign", shows(stranger), forOwner, codes.Unauthenticated},
		{"no certificate", credentials.TLSInfo{}, forOwner, codes.Unauthenticated},
		{"other user", other, forLocal, codes.Unauthenticated},
		{"nobody", nil, forLocal, codes.Unauthenticated},
	} {
		ctx := peer.NewContext(t.Context(), &peer.Peer{AuthInfo: test.proof})
		if _, err := g.admit(ctx, test.method); status.Code(err) != test.want {
			t.Errorf("%s calls %s: %v, want %v", test.name, test.method, err, test.want)
		}
	}
	if _, err := g.admit(context.Background(), forLocal); status.Code(err) != codes.Unauthenticated {
		t.Errorf("without a peer: %v", err)
	}
}

func TestAnExecutableIsBounded(t *testing.T) {
	part := &nodev1.ImportPluginRequest{Data: make([]byte, maxPart)}
	for _, test := range []struct {
		name  string
		parts int
		want  codes.Code
	}{
		{"as large as may be", maxExecutable / maxPart, codes.OK},
		{"larger", maxExecutable/maxPart + 1, codes.InvalidArgument},
	} {
		left := test.parts
		p := &parts{receive: func() (*nodev1.ImportPluginRequest, error) {
			if left == 0 {
				return nil, io.EOF
			}
			left--
			return part, nil
		}}
		n, err := io.Copy(io.Discard, p)
		if status.Code(err) != test.want || (err == nil && n != maxExecutable) || n > maxExecutable {
			t.Errorf("%s: read %d bytes, %v", test.name, n, err)
		}
	}
}
