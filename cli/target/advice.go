package target

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/cli/fault"
)

// advice is what to do about a code that a server answered with; empty: the target knows nothing better than the command.
type advice func(codes.Code) string

// to gives an error what its reader may do about it, who only knows the command line.
func (a advice) to(err error) error {
	if err == nil {
		return nil
	}
	if next := a(status.Code(err)); next != "" {
		return &fault.Advised{Err: err, Next: next}
	}
	return err
}

func adviseUnary(a advice) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		return a.to(invoke(ctx, method, request, reply, conn, options...))
	}
}

func adviseStream(a advice) grpc.StreamClientInterceptor {
	return func(ctx context.Context, description *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer,
		options ...grpc.CallOption) (grpc.ClientStream, error) {
		stream, err := open(ctx, description, conn, method, options...)
		if err != nil {
			return nil, a.to(err)
		}
		return &advisedStream{ClientStream: stream, advice: a}, nil
	}
}

// advisedStream gives the error by which a stream ends its advice.
type advisedStream struct {
	grpc.ClientStream
	advice advice
}

// RecvMsg implements grpc.ClientStream. The end of a stream, io.EOF, has no advice: it is no status.
func (s *advisedStream) RecvMsg(message any) error {
	err := s.ClientStream.RecvMsg(message)
	if _, ok := status.FromError(err); !ok {
		return err
	}
	return s.advice.to(err)
}

// localAdvice is for the local socket, where the kernel says who calls.
func localAdvice(code codes.Code) string {
	switch code {
	case codes.PermissionDenied, codes.Unauthenticated:
		return "Run reeve as root, or as the user as whom reeved runs."
	}
	return ""
}

// keyAdvice is for who proves a key in every call.
func keyAdvice(code codes.Code) string {
	switch code {
	case codes.PermissionDenied, codes.Unauthenticated:
		return "Check that the owner key is the one of the cluster's owner; an operator logs in first: `reeve login --key FILE`."
	}
	return ""
}

// sessionAdvice is for who shows the certificate of a session.
func (t *Target) sessionAdvice(code codes.Code) string {
	switch code {
	case codes.Unauthenticated:
		return "Log in again: " + t.loginCommand() + "."
	case codes.PermissionDenied:
		return "`reeve whoami` shows who you are, `reeve operator list` who may do more."
	case codes.Unavailable, codes.DeadlineExceeded:
		return "`reeve context show " + t.way.context.Name + "` shows where the cluster was looked for; " +
			"if it has moved: `reeve login --name " + t.way.context.Name + " --address HOST:PORT --ca FILE --key FILE`."
	}
	return ""
}

// loginCommand is how the caller gets another session for the context.
func (t *Target) loginCommand() string {
	file := "FILE"
	if t.way.context.KeyFile != "" {
		file = t.way.context.KeyFile
	}
	return "`reeve login --name " + t.way.context.Name + " --key " + file + "`"
}

// newCAAdvice is what to do where the cluster has a newer CA than the caller knows.
func (t *Target) newCAAdvice() string {
	const take = "take its certificates from a node (`reeve ca --socket " + HostSocket + " > ca.pem`)"
	switch {
	case t.way.context != nil:
		address, file := "HOST:PORT", "FILE"
		if known := t.known.addresses(); len(known) > 0 {
			address = known[0]
		}
		if t.way.context.KeyFile != "" {
			file = t.way.context.KeyFile
		}
		return take + ", and log in with them: `reeve login --name " + t.way.context.Name + " --address " + address + " --ca ca.pem --key " + file + "`"
	case t.way.address != "":
		return take + ", and give them with --ca"
	}
	return "`reeve status` says how " + t.way.node() + " comes to know it"
}
