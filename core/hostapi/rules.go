package hostapi

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/reeveproject/reeve/core/plugin"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/proto/rpcoption"
)

// rules is who may call which RPC, by its full name.
type rules map[string]rule

// rule is who may call one RPC.
type rule struct {
	// grant is the name of the grant that the call must fit; empty: every role may call.
	grant string
	power power
}

// rulesOf reads the rules that the RPCs of services declare. It fails closed: an RPC that declares nothing, or something that this
// package cannot enforce, is an error; all of them are reported at once.
func rulesOf(services map[string]grpc.ServiceInfo) (rules, error) {
	declared, err := rpcoption.Declared[*hostv1.Access](services, hostv1.E_Access)
	if err != nil {
		return nil, err
	}
	made := make(rules, len(declared))
	var problems []error
	for method, access := range declared {
		descriptor, err := methodDescriptor(method)
		if err == nil {
			made[method], err = ruleOf(descriptor, access)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("RPC %s: %w", method, err))
		}
	}
	if len(problems) > 0 {
		slices.SortFunc(problems, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
		return nil, errors.Join(problems...)
	}
	return made, nil
}

func methodDescriptor(method string) (protoreflect.MethodDescriptor, error) {
	name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(method, "/"), "/", "."))
	descriptor, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if err != nil {
		return nil, err
	}
	found, ok := descriptor.(protoreflect.MethodDescriptor)
	if !ok {
		return nil, fmt.Errorf("%s is not an RPC", name)
	}
	return found, nil
}

func ruleOf(method protoreflect.MethodDescriptor, access *hostv1.Access) (rule, error) {
	switch declared := access.GetRule().(type) {
	case *hostv1.Access_EveryRole:
		if declared.EveryRole {
			return rule{}, nil
		}
	case *hostv1.Access_ConsensusUser:
		// A role without a ConsensusUser is not refused but told so in the answer, as it is told every other reason. That is only right
		// where the answer can say it.
		if want := (*hostv1.OpenConsensusResponse)(nil).ProtoReflect().Descriptor().FullName(); method.Output().FullName() != want {
			return rule{}, fmt.Errorf("its access is consensus_user, which only an RPC that answers %s can say", want)
		}
		if declared.ConsensusUser {
			return rule{}, nil
		}
	case *hostv1.Access_Grant:
		if method.IsStreamingClient() || method.IsStreamingServer() {
			return rule{}, errors.New("it streams and needs a grant: the grant is checked against the one request of a unary call")
		}
		power, ok := powerOf(declared.Grant)
		if !ok {
			return rule{}, fmt.Errorf("it needs the grant %q, of which it is not known what it allows", declared.Grant)
		}
		if err := power.narrows(method.Input()); err != nil {
			return rule{}, fmt.Errorf("it needs the grant %q: %w", declared.Grant, err)
		}
		return rule{grant: declared.Grant, power: power}, nil
	}
	return rule{}, errors.New("its access option lets nobody in")
}

// permit returns nil if the instance may make the call, and a gRPC status otherwise.
func (r rules) permit(remit *plugin.Remit, method string, request any) error {
	rule, ok := r[method]
	if !ok {
		return status.Errorf(codes.PermissionDenied, "%s declares no access: no role may call it", method)
	}
	if rule.grant == "" {
		return nil
	}
	var granted []*rolev1.Grant
	for _, grant := range remit.Grants.GetGrants() {
		if grant.GetName() == rule.grant {
			granted = append(granted, grant)
		}
	}
	if len(granted) == 0 {
		return status.Errorf(codes.PermissionDenied,
			"role %s is not granted %q, which this call needs: name it among the grants of the role's manifest and have the cluster's owner grant it",
			remit.Role, rule.grant)
	}
	return rule.power.permit(remit.Role, granted, request)
}

// power is what grants of one name allow.
type power interface {
	// narrows returns nil if requests of a type carry what the grant's parameters speak of.
	narrows(request protoreflect.MessageDescriptor) error
	// permit returns nil if one of the grants, at least one, allows the request, and a gRPC status otherwise.
	permit(role string, grants []*rolev1.Grant, request any) error
}

func powerOf(grant string) (power, bool) {
	switch grant {
	case "replace-file":
		return replaceFile{}, true
	default:
		return nil, false
	}
}

// replaceFile is the power to read and to replace one file. Its one parameter, "path", is that file: absolute, without ".", ".." or
// doubled slashes.
type replaceFile struct{}

const pathParameter = "path"

func (replaceFile) narrows(request protoreflect.MessageDescriptor) error {
	field := request.Fields().ByName(pathParameter)
	if field == nil || field.Kind() != protoreflect.StringKind || field.IsList() {
		return fmt.Errorf("%s has no string field %q", request.FullName(), pathParameter)
	}
	return nil
}

func (replaceFile) permit(role string, grants []*rolev1.Grant, request any) error {
	named, ok := request.(interface{ GetPath() string })
	if !ok {
		return status.Errorf(codes.PermissionDenied, "a %T names no file", request)
	}
	path := named.GetPath()
	if err := plainPath(path); err != nil {
		return status.Errorf(codes.InvalidArgument, "the path %.200q %s", path, err)
	}
	var others []string
	for _, grant := range grants {
		parameters := grant.GetParameters()
		// A parameter that is not known here was meant to narrow the grant further: without its meaning nothing is allowed.
		if len(parameters) == 1 && parameters[pathParameter] == path {
			return nil
		}
		others = append(others, fmt.Sprintf("%v", parameters))
	}
	return status.Errorf(codes.PermissionDenied,
		"role %s may not touch %s: its grant replace-file is for %.500s and nothing else; have the cluster's owner grant replace-file with path %s alone",
		role, path, strings.Join(others, ", "), path)
}

// plainPath returns nil for a path that says by itself which file it names, if no symbolic link is followed.
func plainPath(path string) error {
	switch {
	case !strings.HasPrefix(path, "/"):
		return errors.New("is not absolute: begin it with /")
	case strings.ContainsRune(path, 0):
		return errors.New("has a zero byte in it")
	case len(path) > 4095:
		return errors.New("is longer than the kernel takes")
	case filepath.Clean(path) != path:
		return fmt.Errorf("is not in its shortest form: write %.200q", filepath.Clean(path))
	case path == "/":
		return errors.New("is a directory: name a file")
	}
	return nil
}
