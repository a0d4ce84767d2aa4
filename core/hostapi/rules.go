package hostapi

import (
	"errors"
	"fmt"
	"maps"
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

// rules says who may call which RPC, by its full name.
type rules map[string]rule

// rule says who may call one RPC.
type rule struct {
	// grant is the grant that the call needs; empty: every role may call.
	grant string
	power power
}

// rulesOf reads the rules that the services' RPCs declare. It fails closed: an RPC without a rule, or with one that this package cannot enforce, is
// an error. All such errors are reported at once.
func rulesOf(services map[string]grpc.ServiceInfo) (rules, error) {
	made := make(rules)
	var problems []error
	own := maps.Clone(services)
	for name, rpcs := range foreign {
		if info, served := own[name]; served {
			delete(own, name)
			problems = append(problems, made.add(name, info, rpcs)...)
		}
	}
	declared, err := rpcoption.Declared[*hostv1.Access](own, hostv1.E_Access)
	if err != nil {
		return nil, errors.Join(append(problems, err)...)
	}
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

// foreign are the services whose proto files are not ours and cannot carry our option. This table says who may call each RPC: every role, because
// they only tell callers about themselves.
var foreign = map[string]map[string]rule{
	"SpiffeWorkloadAPI": {
		"FetchX509SVID":    {},
		"FetchX509Bundles": {},
		// Not implemented; clients call them to find that out.
		"FetchJWTSVID":    {},
		"FetchJWTBundles": {},
		"ValidateJWTSVID": {},
		"FetchWITSVID":    {},
		"FetchWITBundles": {},
	},
}

// add adds the rules of a foreign service. The table must name exactly its RPCs: a new version with more RPCs is not served before somebody has
// decided who may call them.
func (r rules) add(service string, info grpc.ServiceInfo, rpcs map[string]rule) []error {
	var problems []error
	served := make(map[string]bool)
	for _, method := range info.Methods {
		served[method.Name] = true
		rule, known := rpcs[method.Name]
		if !known {
			problems = append(problems, fmt.Errorf("RPC /%s/%s: it has no rule that says who may call it", service, method.Name))
			continue
		}
		r["/"+service+"/"+method.Name] = rule
	}
	for name := range rpcs {
		if !served[name] {
			problems = append(problems, fmt.Errorf("RPC /%s/%s: the service does not have it", service, name))
		}
	}
	return problems
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
		// A role without a ConsensusUser is not refused; the answer tells it the reason. So the answer must be able to say that.
		if want := (*hostv1.OpenConsensusResponse)(nil).ProtoReflect().Descriptor().FullName(); method.Output().FullName() != want {
			return rule{}, fmt.Errorf("its access is consensus_user, which needs an RPC that answers %s", want)
		}
		if declared.ConsensusUser {
			return rule{}, nil
		}
	case *hostv1.Access_Grant:
		power, ok := powerOf(declared.Grant)
		if !ok {
			return rule{}, fmt.Errorf("it needs the grant %q, which this core does not know", declared.Grant)
		}
		if _, bare := power.(bare); !bare && (method.IsStreamingClient() || method.IsStreamingServer()) {
			return rule{}, errors.New("it streams and needs a grant with parameters, which can only be checked against the request of a unary call")
		}
		if err := power.narrows(method.Input()); err != nil {
			return rule{}, fmt.Errorf("it needs the grant %q: %w", declared.Grant, err)
		}
		return rule{grant: declared.Grant, power: power}, nil
	}
	return rule{}, errors.New("its access option allows nobody")
}

// permit returns nil if the instance may make the call, otherwise a gRPC status.
func (r rules) permit(remit *plugin.Remit, method string, request any) error {
	rule, ok := r[method]
	if !ok {
		return status.Errorf(codes.PermissionDenied, "%s has no access option, so no role may call it", method)
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
			"this call needs the grant %[2]q, which role %[1]s does not have: add it to the role's manifest and ask the cluster's owner to grant it",
			remit.Role, rule.grant)
	}
	return rule.power.permit(remit.Role, granted, request)
}
