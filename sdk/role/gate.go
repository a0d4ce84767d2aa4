package role

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// gate stands in for the services that roles add to the plugin connection. All services of all roles must be registered before the server serves, but
// only those of the running role may answer, and several roles may offer the same service. So a stand-in is registered for each service, which
// forwards calls to the running role's.
type gate struct {
	// running returns the instance whose services answer, or a gRPC status.
	running func() (*instance, error)
	// services maps each role to its services by full name.
	services map[string]map[string]service
}

type service struct {
	descriptor     *grpc.ServiceDesc
	implementation any
}

// newGate calls every role's Register.
func newGate(roles []Role, running func() (*instance, error)) (*gate, error) {
	g := &gate{running: running, services: make(map[string]map[string]service)}
	for _, role := range roles {
		registrar := &registrar{services: make(map[string]service)}
		if role.Register != nil {
			role.Register(registrar)
		}
		if registrar.err != nil {
			return nil, fmt.Errorf("role %q: %w", role.Name, registrar.err)
		}
		g.services[role.Name] = registrar.services
	}
	return g, nil
}

// registrar collects the services of one role.
type registrar struct {
	services map[string]service
	err      error
}

// RegisterService implements grpc.ServiceRegistrar.
func (r *registrar) RegisterService(descriptor *grpc.ServiceDesc, implementation any) {
	name := descriptor.ServiceName
	switch _, twice := r.services[name]; {
	case r.err != nil:
	case twice:
		r.err = fmt.Errorf("service %s is registered twice", name)
	case reserved(name):
		r.err = fmt.Errorf("service %s is reserved for the SDK", name)
	case implementation == nil || !reflect.TypeOf(implementation).Implements(reflect.TypeOf(descriptor.HandlerType).Elem()):
		r.err = fmt.Errorf("service %s: %T does not implement it", name, implementation)
	default:
		r.services[name] = service{descriptor: descriptor, implementation: implementation}
	}
}

// reserved reports whether the SDK or go-plugin already serves a service on every plugin connection.
func reserved(name string) bool {
	for _, prefix := range []string{"reeve.role.v1.", "plugin.", "grpc."} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// register registers the stand-ins.
func (g *gate) register(server grpc.ServiceRegistrar) {
	standIns := make(map[string]*grpc.ServiceDesc)
	for _, services := range g.services {
		for name, service := range services {
			standIn := standIns[name]
			if standIn == nil {
				standIn = &grpc.ServiceDesc{ServiceName: name, HandlerType: (*any)(nil), Metadata: service.descriptor.Metadata}
				standIns[name] = standIn
			}
			g.addMethods(standIn, service.descriptor)
		}
	}
	for _, standIn := range standIns {
		server.RegisterService(standIn, nil)
	}
}

func (g *gate) addMethods(standIn, descriptor *grpc.ServiceDesc) {
	known := make(map[string]bool)
	for _, method := range standIn.Methods {
		known[method.MethodName] = true
	}
	for _, stream := range standIn.Streams {
		known[stream.StreamName] = true
	}
	for _, method := range descriptor.Methods {
		if !known[method.MethodName] {
			standIn.Methods = append(standIn.Methods, g.method(descriptor.ServiceName, method.MethodName))
		}
	}
	for _, stream := range descriptor.Streams {
		if !known[stream.StreamName] {
			standIn.Streams = append(standIn.Streams, g.stream(descriptor.ServiceName, stream))
		}
	}
}

func (g *gate) method(serviceName, methodName string) grpc.MethodDesc {
	return grpc.MethodDesc{
		MethodName: methodName,
		Handler: func(_ any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
			service, instance, err := g.open(serviceName)
			if err != nil {
				return nil, err
			}
			for _, method := range service.descriptor.Methods {
				if method.MethodName == methodName {
					ctx, done := instance.whileServing(ctx)
					defer done()
					return method.Handler(service.implementation, ctx, decode, interceptor)
				}
			}
			return nil, status.Errorf(codes.Unimplemented, "role %s does not serve %s/%s", instance.role.Name, serviceName, methodName)
		},
	}
}

func (g *gate) stream(serviceName string, like grpc.StreamDesc) grpc.StreamDesc {
	standIn := like
	standIn.Handler = func(_ any, stream grpc.ServerStream) error {
		service, instance, err := g.open(serviceName)
		if err != nil {
			return err
		}
		for _, candidate := range service.descriptor.Streams {
			if candidate.StreamName == like.StreamName {
				ctx, done := instance.whileServing(stream.Context())
				defer done()
				return candidate.Handler(service.implementation, &streamWithContext{ServerStream: stream, ctx: ctx})
			}
		}
		return status.Errorf(codes.Unimplemented, "role %s does not serve %s/%s", instance.role.Name, serviceName, like.StreamName)
	}
	return standIn
}

// open returns the running role's service of a name.
func (g *gate) open(name string) (service, *instance, error) {
	instance, err := g.running()
	if err != nil {
		return service{}, nil, err
	}
	found, served := g.services[instance.role.Name][name]
	if !served {
		return service{}, nil, status.Errorf(codes.FailedPrecondition,
			"this process runs the role %s, which does not serve %s", instance.role.Name, name)
	}
	return found, instance, nil
}

type streamWithContext struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (s *streamWithContext) Context() context.Context { return s.ctx }
