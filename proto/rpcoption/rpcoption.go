package rpcoption

import (
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// Declared returns what every RPC of the services registered on a server declares in the method option extension, by the RPC's full
// name as gRPC spells it ("/package.Service/Method"). An RPC without the option, and a service whose descriptor is not compiled in, is an
// error; all of them are reported at once.
func Declared[T proto.Message](services map[string]grpc.ServiceInfo, extension protoreflect.ExtensionType) (map[string]T, error) {
	declared := make(map[string]T)
	var problems []error
	for name := range services {
		descriptor, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
		if err != nil {
			problems = append(problems, fmt.Errorf("service %s: no descriptor: %w", name, err))
			continue
		}
		service, ok := descriptor.(protoreflect.ServiceDescriptor)
		if !ok {
			problems = append(problems, fmt.Errorf("service %s: the descriptor is not a service's", name))
			continue
		}
		for i := range service.Methods().Len() {
			method := service.Methods().Get(i)
			full := "/" + name + "/" + string(method.Name())
			if !proto.HasExtension(method.Options(), extension) {
				problems = append(problems, fmt.Errorf("RPC %s declares no option %s", full, extension.TypeDescriptor().FullName()))
				continue
			}
			value, ok := proto.GetExtension(method.Options(), extension).(T)
			if !ok {
				problems = append(problems, fmt.Errorf("RPC %s: option %s has another type", full, extension.TypeDescriptor().FullName()))
				continue
			}
			declared[full] = value
		}
	}
	if len(problems) > 0 {
		slices.SortFunc(problems, func(a, b error) int {
			if a.Error() < b.Error() {
				return -1
			}
			return 1
		})
		return nil, errors.Join(problems...)
	}
	return declared, nil
}
