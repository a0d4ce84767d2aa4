package rpcoption_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	_ "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/proto/rpcoption"
)

// registered is what a server with the services registered says of itself.
func registered(register ...func(grpc.ServiceRegistrar)) map[string]grpc.ServiceInfo {
	server := grpc.NewServer()
	for _, add := range register {
		add(server)
	}
	return server.GetServiceInfo()
}

func host(s grpc.ServiceRegistrar) {
	hostv1.RegisterHostServiceServer(s, hostv1.UnimplementedHostServiceServer{})
}

func health(s grpc.ServiceRegistrar) {
	healthv1.RegisterHealthServer(s, healthv1.UnimplementedHealthServer{})
}

func consensus(s grpc.ServiceRegistrar) {
	consensusv1.RegisterConsensusServiceServer(s, consensusv1.UnimplementedConsensusServiceServer{})
}

// Every RPC that the core serves to roles says who may call it.
func TestHostServiceDeclares(t *testing.T) {
	declared, err := rpcoption.Declared[*hostv1.Access](registered(host), hostv1.E_Access)
	if err != nil {
		t.Fatal(err)
	}
	if len(declared) != len(hostv1.HostService_ServiceDesc.Methods)+len(hostv1.HostService_ServiceDesc.Streams) {
		t.Errorf("declared: %v", slices.Sorted(maps.Keys(declared)))
	}
	for method, access := range declared {
		switch rule := access.GetRule().(type) {
		case *hostv1.Access_EveryRole:
			if !rule.EveryRole {
				t.Errorf("%s: every_role is false, which permits nobody and says nothing", method)
			}
		case *hostv1.Access_ConsensusUser:
			if !rule.ConsensusUser {
				t.Errorf("%s: consensus_user is false, which permits nobody and says nothing", method)
			}
		case *hostv1.Access_Grant:
			if rule.Grant == "" {
				t.Errorf("%s: the grant has no name", method)
			}
		default:
			t.Errorf("%s: the option has no rule", method)
		}
	}
	if got := declared[hostv1.HostService_ReplaceFile_FullMethodName].GetGrant(); got != "replace-file" {
		t.Errorf("ReplaceFile needs the grant %q", got)
	}
}

// Every RPC of the cluster API and of the node's API says who may call it, and no caller is the unspecified one.
func TestPermissionsAreDeclared(t *testing.T) {
	services := registered(
		func(s grpc.ServiceRegistrar) {
			clusterv1.RegisterBootstrapServiceServer(s, clusterv1.UnimplementedBootstrapServiceServer{})
		},
		func(s grpc.ServiceRegistrar) {
			clusterv1.RegisterNodeServiceServer(s, clusterv1.UnimplementedNodeServiceServer{})
		},
		func(s grpc.ServiceRegistrar) {
			clusterv1.RegisterManagementServiceServer(s, clusterv1.UnimplementedManagementServiceServer{})
		},
		func(s grpc.ServiceRegistrar) {
			nodev1.RegisterNodeServiceServer(s, nodev1.UnimplementedNodeServiceServer{})
		},
	)
	declared, err := rpcoption.Declared[*clusterv1.Permission](services, clusterv1.E_Permission)
	if err != nil {
		t.Fatal(err)
	}
	for method, permission := range declared {
		if len(permission.GetCallers()) == 0 || slices.Contains(permission.GetCallers(), clusterv1.Caller_CALLER_UNSPECIFIED) {
			t.Errorf("%s: callers %v", method, permission.GetCallers())
		}
	}
	for method, want := range map[string][]clusterv1.Caller{
		clusterv1.BootstrapService_Bootstrap_FullMethodName:    {clusterv1.Caller_CALLER_CORE},
		clusterv1.NodeService_Watch_FullMethodName:             {clusterv1.Caller_CALLER_NODE},
		clusterv1.ManagementService_AddRole_FullMethodName:     {clusterv1.Caller_CALLER_OWNER, clusterv1.Caller_CALLER_OPERATOR},
		clusterv1.ManagementService_AddPlugin_FullMethodName:   {clusterv1.Caller_CALLER_OWNER},
		clusterv1.ManagementService_AddOperator_FullMethodName: {clusterv1.Caller_CALLER_OWNER},
		nodev1.NodeService_ReplaceOwner_FullMethodName:         {clusterv1.Caller_CALLER_LOCAL},
	} {
		if got := declared[method].GetCallers(); !slices.Equal(got, want) {
			t.Errorf("%s: callers %v, want %s", method, got, want)
		}
	}
}

// demands is which option the RPCs of each package must declare; nil: none, since only the core of the node is let in at all.
var demands = map[protoreflect.FullName]protoreflect.ExtensionType{
	"reeve.host.v1":      hostv1.E_Access,
	"reeve.cluster.v1":   clusterv1.E_Permission,
	"reeve.node.v1":      clusterv1.E_Permission,
	"reeve.role.v1":      nil,
	"reeve.consensus.v1": nil,
}

// No service is forgotten: a new package has to say here what its RPCs declare, and a new service of a package declares it.
func TestEveryService(t *testing.T) {
	services := 0
	protoregistry.GlobalFiles.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		if !strings.HasPrefix(string(file.Package()), "reeve.") {
			return true
		}
		for n := range file.Services().Len() {
			service := file.Services().Get(n)
			services++
			if !strings.HasSuffix(string(service.Name()), "Service") {
				t.Errorf("the name of %s does not end in Service", service.FullName())
			}
			option, known := demands[file.Package()]
			if !known {
				t.Errorf("%s: nobody has said what the RPCs of %s declare", service.FullName(), file.Package())
			}
			for m := range service.Methods().Len() {
				method := service.Methods().Get(m)
				if option != nil && !proto.HasExtension(method.Options(), option) {
					t.Errorf("%s declares no option %s", method.FullName(), option.TypeDescriptor().FullName())
				}
			}
		}
		return true
	})
	if services < 7 {
		t.Errorf("only %d services were looked at", services)
	}
}

// A server is refused with an RPC that declares nothing, and the error names all of them.
func TestUndeclared(t *testing.T) {
	services := registered(host, health, consensus)
	services["nonesuch.v1.GoneService"] = grpc.ServiceInfo{}
	services["reeve.host.v1.Membership"] = grpc.ServiceInfo{}
	declared, err := rpcoption.Declared[*hostv1.Access](services, hostv1.E_Access)
	if err == nil || declared != nil {
		t.Fatalf("got %v, %v", declared, err)
	}
	for _, want := range []string{
		"RPC /grpc.health.v1.Health/Check declares no option reeve.host.v1.access",
		"RPC /grpc.health.v1.Health/Watch declares no option",
		"RPC /reeve.consensus.v1.ConsensusService/Form declares no option",
		"service nonesuch.v1.GoneService: no descriptor",
		"service reeve.host.v1.Membership: the descriptor is not a service's",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in the error:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "reeve.host.v1.HostService") {
		t.Errorf("the error names a service that declares everything:\n%v", err)
	}
}

func TestOptionOfAnotherType(t *testing.T) {
	_, err := rpcoption.Declared[*clusterv1.Permission](registered(host), hostv1.E_Access)
	if err == nil || !strings.Contains(err.Error(), "another type") {
		t.Errorf("got %v", err)
	}
}
