package hostapi_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/core/access"
	"github.com/reeveproject/reeve/core/hostapi"
	"github.com/reeveproject/reeve/core/membership"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// rawBytes sends bytes as they are, and ignores what comes back.
type rawBytes struct{}

func (rawBytes) Name() string                  { return "proto" }
func (rawBytes) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (rawBytes) Unmarshal([]byte, any) error   { return nil }

// FuzzRequests: whatever a role sends, it is answered by one of the codes that the protocol names, and reaches no other file than the granted ones.
func FuzzRequests(f *testing.F) {
	dir := sharedDir(f)
	path := func(name string) string { return filepath.Join(dir, name) }
	issuer := newIssuer(f)
	server, err := hostapi.New(hostapi.Config{
		RunDir: dir, Membership: new(event.Value[membership.Status]), Directory: new(event.Value[*hostv1.Directory]),
		Network: new(event.Value[[]string]), Peers: new(event.Value[[]string]), Curators: new(event.Value[[]string]), Operators: new(event.Value[*hostv1.Operators]), Access: new(event.Value[access.States]),
		Identity: event.New(issuer.identity()), Issuer: issuer,
	})
	if err != nil {
		f.Fatal(err)
	}
	// Without set-hostname: the name would be that of the machine that runs the test.
	socket, closeSocket, err := server.Open(remitOf("role.1", replaceFileGrant(path("file")),
		&rolev1.Grant{Name: "set-machine-id", Parameters: map[string]string{"path": path("machine-id")}}))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(closeSocket)
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = conn.Close() })

	methods := []string{
		hostv1.HostService_ReadFile_FullMethodName, hostv1.HostService_ReplaceFile_FullMethodName,
		hostv1.HostService_SetMachineID_FullMethodName, hostv1.HostService_SetHostname_FullMethodName,
		hostv1.HostService_IssueSVID_FullMethodName,
	}
	for n, message := range []proto.Message{
		&hostv1.ReadFileRequest{Path: path("file")}, &hostv1.ReplaceFileRequest{Path: path("file"), Content: []byte("x")},
		&hostv1.SetMachineIDRequest{MachineId: machineID}, &hostv1.SetHostnameRequest{Name: "x"},
		&hostv1.IssueSVIDRequest{CertificateRequest: csrOf(f, seedKey(f))},
		&hostv1.ReadFileRequest{Path: path("victim")}, &hostv1.ReplaceFileRequest{Path: path("../victim"), ExpectedDigest: digestOf("victim")},
	} {
		seed, err := proto.Marshal(message)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(n), seed)
		f.Add(uint8(n), seed[:len(seed)/2])
	}
	mustWrite(f, path("victim"), "victim", 0o600)
	f.Fuzz(func(t *testing.T, which uint8, request []byte) {
		method := methods[int(which)%len(methods)]
		var nothing []byte
		err := conn.Invoke(within(t), method, &request, &nothing, grpc.ForceCodec(rawBytes{}))
		switch status.Code(err) {
		case codes.OK, codes.NotFound, codes.PermissionDenied, codes.InvalidArgument, codes.FailedPrecondition, codes.Aborted, codes.ResourceExhausted:
		default:
			if !strings.Contains(err.Error(), "unmarshal") {
				t.Errorf("%s of %q: %v", method, request, err)
			}
		}
		mustHold(t, path("victim"), "victim")
		entries, err := os.ReadDir(dir)
		for _, entry := range entries {
			if name := entry.Name(); name != "file" && name != "machine-id" && name != "victim" && name != "host" {
				t.Errorf("%s of %q leaves %s", method, request, name)
			}
		}
		if err != nil || len(entries) < 2 {
			t.Error(fmt.Sprint(entries), err)
		}
	})
}
