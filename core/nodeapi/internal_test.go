package nodeapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
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

func TestTheGateAdmitsWhomTheRPCNames(t *testing.T) {
	const forOwner, forLocal, forNobody = "/s/ForOwner", "/s/ForLocal", "/s/ForNobody"
	stranger := errors.New("a stranger")
	g := gate{
		permitted: map[string][]clusterv1.Caller{
			forOwner: {clusterv1.Caller_CALLER_OWNER},
			forLocal: {clusterv1.Caller_CALLER_CORE, clusterv1.Caller_CALLER_LOCAL},
		},
		owner: func(state tls.ConnectionState) error {
			if state.ServerName != "owner" {
				return stranger
			}
			return nil
		},
	}
	local := peercred.Info{Peer: peercred.Peer{UID: uint32(os.Geteuid())}}
	other := peercred.Info{Peer: peercred.Peer{UID: uint32(os.Geteuid()) + 1}}
	owner := credentials.TLSInfo{State: tls.ConnectionState{ServerName: "owner"}}
	foreign := credentials.TLSInfo{State: tls.ConnectionState{ServerName: "foreign"}}
	for _, test := range []struct {
		name   string
		proof  credentials.AuthInfo
		method string
		want   codes.Code
	}{
		{"local", local, forLocal, codes.OK},
		{"local", local, forOwner, codes.PermissionDenied},
		{"local", local, forNobody, codes.PermissionDenied},
		{"owner", owner, forOwner, codes.OK},
		{"owner", owner, forLocal, codes.PermissionDenied},
		{"owner", owner, forNobody, codes.PermissionDenied},
		{"foreign", foreign, forOwner, codes.Unauthenticated},
		{"other user", other, forLocal, codes.Unauthenticated},
		{"nobody", nil, forLocal, codes.Unauthenticated},
	} {
		ctx := peer.NewContext(t.Context(), &peer.Peer{AuthInfo: test.proof})
		if got := status.Code(g.check(ctx, test.method)); got != test.want {
			t.Errorf("%s calls %s: %v, want %v", test.name, test.method, got, test.want)
		}
	}
	if got := status.Code(g.check(context.Background(), forLocal)); got != codes.Unauthenticated {
		t.Errorf("without a peer: %v", got)
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

// endless is a log of a tebibyte, of lines of 16 bytes.
type endless struct{ read int64 }

func (e *endless) ReadAt(into []byte, off int64) (int, error) {
	e.read += int64(len(into))
	for i := range into {
		into[i] = 'x'
		if (off+int64(i))%16 == 15 {
			into[i] = '\n'
		}
	}
	return len(into), nil
}

func TestATailIsFoundFromTheEnd(t *testing.T) {
	const size = 1 << 40
	log := &endless{}
	start, err := tailStart(log, size, 10_000)
	if err != nil || start != size-10_000*16 {
		t.Errorf("the tail starts at %d, %v", start, err)
	}
	if most := int64(10_000*16 + 2*logChunk); log.read > most {
		t.Errorf("%d bytes were read, %d suffice", log.read, most)
	}
	if _, err := tailStart(bytes.NewReader([]byte("short\n")), 100, 1); !errors.Is(err, errShrunk) {
		t.Error("a file that became shorter is no error")
	}
}
