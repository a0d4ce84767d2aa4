package hostapi_test

import (
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/health/grpc_health_v1" // a service without access options
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/reeveproject/reeve/core/access"
	"github.com/reeveproject/reeve/core/hostapi"
	"github.com/reeveproject/reeve/core/inorder"
	"github.com/reeveproject/reeve/core/membership"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// TestEveryRPC calls every RPC of the protocol with no grant, with grants that do not fit and with the one that does. Which outcome is right
// comes from the RPC's option, so that an RPC that is added is in the table by itself.
func TestEveryRPC(t *testing.T) {
	n := newNode(t, nil)
	n.membership.Set(membership.Status{State: membership.Home})
	n.directory.Set(&hostv1.Directory{})
	n.network.Set(nil)
	n.operators.Set(&hostv1.Operators{})
	n.access.Set(access.States{})
	n.identity.Set(n.issuer.identity())
	path := filepath.Join(n.runDir, "granted")
	mustWrite(t, path, "content", 0o644)

	service := hostv1.File_reeve_host_v1_host_proto.Services().ByName("HostService")
	for i := range service.Methods().Len() {
		method := service.Methods().Get(i)
		declared, ok := proto.GetExtension(method.Options(), hostv1.E_Access).(*hostv1.Access)
		if !ok || declared.GetRule() == nil {
			t.Errorf("%s declares nobody", method.FullName())
			continue
		}
		grant := declared.GetGrant()
		// Where the call does not name the file, the grant alone does.
		bare := grant == "watch-operators" // takes no parameters
		namesFile := method.Input().Fields().ByName("path") != nil
		right := &rolev1.Grant{Name: grant, Parameters: map[string]string{"path": path}}
		if bare {
			right.Parameters = nil
		}
		for name, test := range inorder.Of(map[string]struct {
			grants []*rolev1.Grant
			fits   bool
		}{
			"no grant":         {nil, false},
			"another grant":    {[]*rolev1.Grant{{Name: "other", Parameters: map[string]string{"path": path}}}, false},
			"another file":     {[]*rolev1.Grant{{Name: grant, Parameters: map[string]string{"path": path + "x"}}}, !namesFile && !bare},
			"its directory":    {[]*rolev1.Grant{{Name: grant, Parameters: map[string]string{"path": n.runDir}}}, !namesFile && !bare},
			"no plain path":    {[]*rolev1.Grant{{Name: grant, Parameters: map[string]string{"path": n.runDir + "/../x"}}}, false},
			"no parameters":    {[]*rolev1.Grant{{Name: grant}}, grant == "set-hostname" || bare},
			"empty parameter":  {[]*rolev1.Grant{{Name: grant, Parameters: map[string]string{"path": ""}}}, false},
			"narrowed further": {[]*rolev1.Grant{{Name: grant, Parameters: map[string]string{"path": path, "lines": "3"}}}, false},
			"another case":     {[]*rolev1.Grant{{Name: strings.ToUpper(grant), Parameters: map[string]string{"path": path}}}, false},
			"right grant":      {[]*rolev1.Grant{right}, true},
			"one of two":       {[]*rolev1.Grant{replaceFileGrant("/somewhere/else"), right}, true},
		}) {
			for _, user := range []string{"", "user"} {
				t.Run(string(method.Name())+"/"+name+"/"+user, func(t *testing.T) {
					remit := remitOf("role.1", test.grants...)
					remit.Manifest.ConsensusUser = user
					socket, closeSocket, err := n.server.Open(remit)
					if err != nil {
						t.Fatal(err)
					}
					defer closeSocket()
					response, err := call(t, connect(t, socket), method, path)
					switch rule := declared.GetRule().(type) {
					case *hostv1.Access_EveryRole:
						if err != nil {
							t.Errorf("every role may call it: %v", err)
						}
					case *hostv1.Access_ConsensusUser:
						want := map[string]string{"": "UNKNOWN_USER", "user": "WAITING"}[user]
						if err != nil || !strings.Contains(response, want) {
							t.Errorf("answers %s (%v), and should %s", response, err, want)
						}
					case *hostv1.Access_Grant:
						if !test.fits {
							mustRefuse(t, err, codes.PermissionDenied, "role", rule.Grant, "owner")
						} else if status.Code(err) == codes.PermissionDenied {
							t.Errorf("its grant fits: %v", err)
						}
					default:
						t.Errorf("declares a %T, which this test does not know", rule)
					}
				})
			}
		}
	}
}

// call calls any RPC, with a path if its request has one, and returns the first response as text.
func call(t *testing.T, conn *grpc.ClientConn, method protoreflect.MethodDescriptor, path string) (string, error) {
	t.Helper()
	request, response := dynamicpb.NewMessage(method.Input()), dynamicpb.NewMessage(method.Output())
	if field := method.Input().Fields().ByName("path"); field != nil {
		request.Set(field, protoreflect.ValueOfString(path))
	}
	if field := method.Input().Fields().ByName("certificate_request"); field != nil {
		request.Set(field, protoreflect.ValueOfBytes(csrOf(t, newKey(t))))
	}
	full := "/" + string(method.Parent().FullName()) + "/" + string(method.Name())
	ctx := within(t)
	if !method.IsStreamingServer() {
		err := conn.Invoke(ctx, full, request, response)
		return response.String(), err
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, full)
	if err != nil {
		return "", err
	}
	if err := stream.SendMsg(request); err != nil {
		return "", err
	}
	if err := stream.CloseSend(); err != nil {
		return "", err
	}
	err = stream.RecvMsg(response)
	return response.String(), err
}

// TestServicesThatDeclareNothing are refused, each by name.
func TestServicesThatDeclareNothing(t *testing.T) {
	for service, want := range map[string][]string{
		"grpc.health.v1.Health":     {"/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch", "reeve.host.v1.access"},
		"reeve.role.v1.RoleService": {"/reeve.role.v1.RoleService/Start"},
		"reeve.host.v1.None":        {"reeve.host.v1.None"},
	} {
		err := hostapi.RefusesServices(map[string]grpc.ServiceInfo{"reeve.host.v1.HostService": {}, service: {}})
		if err == nil {
			t.Errorf("%s is served without saying to whom", service)
			continue
		}
		for _, part := range want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s is refused without naming %s: %v", service, part, err)
			}
		}
	}
	if err := hostapi.RefusesServices(map[string]grpc.ServiceInfo{"reeve.host.v1.HostService": {}}); err != nil {
		t.Errorf("the host protocol itself: %v", err)
	}
	if err := hostapi.Permit(remitOf("role.1"), "/reeve.host.v1.HostService/Other", nil); status.Code(err) != codes.PermissionDenied {
		t.Errorf("an RPC that is not known: %v", err)
	}
}

// TestPaths: which paths a grant for them lets in.
func TestPaths(t *testing.T) {
	for path, want := range map[string]codes.Code{
		"/etc/hosts":                           codes.OK,
		"/a":                                   codes.OK,
		"/etc/..hosts":                         codes.OK,
		"/a b/ä":                               codes.OK,
		"":                                     codes.InvalidArgument,
		"/":                                    codes.InvalidArgument,
		".":                                    codes.InvalidArgument,
		"etc/hosts":                            codes.InvalidArgument,
		"/etc//hosts":                          codes.InvalidArgument,
		"/etc/hosts/":                          codes.InvalidArgument,
		"/etc/./hosts":                         codes.InvalidArgument,
		"/etc/../etc/hosts":                    codes.InvalidArgument,
		"/etc/ho\x00sts":                       codes.InvalidArgument,
		"//etc/hosts":                          codes.InvalidArgument,
		"/" + strings.Repeat("a/", 3000) + "b": codes.InvalidArgument,
	} {
		for _, request := range []any{&hostv1.ReadFileRequest{Path: path}, &hostv1.ReplaceFileRequest{Path: path}} {
			method := "/reeve.host.v1.HostService/" + strings.TrimSuffix(string(request.(proto.Message).ProtoReflect().Descriptor().Name()), "Request")
			if err := hostapi.Permit(remitOf("role.1", replaceFileGrant(path)), method, request); status.Code(err) != want {
				t.Errorf("%s of %.50q with the grant for it: %v, and should be %v", method, path, err, want)
			}
		}
	}
}

// FuzzGrant: whatever a role asks for and whatever is granted, only a path that is granted to the letter and says by itself where it leads
// is let in.
func FuzzGrant(f *testing.F) {
	f.Add("/etc/hosts", "/etc/hosts", "")
	f.Add("/etc/hosts", "/etc/../etc/hosts", "")
	f.Add("/etc/../etc/hosts", "/etc/../etc/hosts", "")
	f.Add("/etc/hosts", "/etc/hosts\x00", "lines")
	f.Add("", "", "path")
	f.Add("/", "/", "")
	f.Fuzz(func(t *testing.T, granted, asked, parameter string) {
		grant := replaceFileGrant(granted)
		if parameter != "" {
			grant.Parameters[parameter] = granted
		}
		err := hostapi.Permit(remitOf("role.1", grant), hostv1.HostService_ReplaceFile_FullMethodName, &hostv1.ReplaceFileRequest{Path: asked})
		plain := len(asked) > 1 && asked[0] == '/' && filepath.IsLocal(asked[1:]) && filepath.Clean(asked) == asked && !strings.Contains(asked, "\x00") && len(asked) < 4096
		fits := plain && granted == asked && len(grant.GetParameters()) == 1
		switch code := status.Code(err); {
		case fits != (err == nil):
			t.Errorf("%q with the grant for %v: %v", asked, grant.GetParameters(), err)
		case err != nil && code != codes.PermissionDenied && code != codes.InvalidArgument:
			t.Errorf("%q is refused with %v", asked, err)
		}
	})
}
