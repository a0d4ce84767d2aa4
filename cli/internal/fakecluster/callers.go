package fakecluster

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"net"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/proto/rpcoption"
)

// caller is who made a call.
type caller struct {
	kind clusterv1.Caller
	// name is as the audit log has it.
	name string
	// operator is nil for the holder of the owner key.
	operator *clusterv1.Operator
	// session is as whom the caller has logged in; zero: it proves a pinned key.
	session identity.Session
	// key is the one that a newcomer proves.
	key ed25519.PublicKey
}

// byKey says that an operator proves the key that its record pins, which is good for logging in only.
func (c caller) byKey() bool { return c.operator != nil && c.session == identity.Session{} }

type callerKey struct{}

// kinds is as what operators are let in.
var kinds = map[clusterv1.OperatorRole]clusterv1.Caller{
	clusterv1.OperatorRole_OPERATOR_ROLE_OWNER:    clusterv1.Caller_CALLER_OWNER,
	clusterv1.OperatorRole_OPERATOR_ROLE_OPERATOR: clusterv1.Caller_CALLER_OPERATOR,
	clusterv1.OperatorRole_OPERATOR_ROLE_VIEWER:   clusterv1.Caller_CALLER_VIEWER,
}

// identify finds out who makes a call. The cluster is locked.
func (c *Cluster) identify(ctx context.Context) (caller, error) {
	from, _ := peer.FromContext(ctx)
	info, ok := from.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return caller{kind: clusterv1.Caller_CALLER_LOCAL, name: "local"}, nil
	}
	chain := info.State.PeerCertificates
	if key, err := identity.PinnedKey(chain[0]); err == nil {
		return c.pinned(key)
	}
	session, err := identity.VerifySession(chain, []*x509.Certificate{c.authority.certificate}, c.authority.domain, c.clock)
	if err != nil {
		return caller{}, status.Error(codes.Unauthenticated, err.Error())
	}
	if session.Operator == "" {
		if session.ID != identity.OwnerKeyID(c.owner) {
			return caller{}, status.Error(codes.Unauthenticated, "the session is of an owner key that was replaced")
		}
		return caller{kind: clusterv1.Caller_CALLER_OWNER, name: "owner", session: session}, nil
	}
	for _, operator := range c.operators {
		if operator.GetName() == session.Operator && operator.GetId() == session.ID {
			return caller{kind: kinds[operator.GetRole()], name: "operator " + operator.GetName(), operator: operator, session: session}, nil
		}
	}
	return caller{}, status.Errorf(codes.Unauthenticated, "operator %s was revoked", session.Operator)
}

func (c *Cluster) pinned(key ed25519.PublicKey) (caller, error) {
	if key.Equal(c.owner) {
		return caller{kind: clusterv1.Caller_CALLER_OWNER, name: "owner"}, nil
	}
	for _, operator := range c.operators {
		if key.Equal(ed25519.PublicKey(operator.GetPublicKey())) {
			return caller{kind: kinds[operator.GetRole()], name: "operator " + operator.GetName(), operator: operator}, nil
		}
	}
	return caller{}, status.Error(codes.Unauthenticated, "the key is no operator's, and the caller is not the owner")
}

// admit lets those through whom the RPC declares.
func (c *Cluster) admit(ctx context.Context, method string) (caller, error) {
	if slices.Contains(permissionOf(method).GetCallers(), clusterv1.Caller_CALLER_NEWCOMER) {
		return newcomer(ctx)
	}
	who, err := c.identify(ctx)
	if err != nil {
		return caller{name: "unknown"}, err
	}
	permission := permissionOf(method)
	if !slices.Contains(permission.GetCallers(), who.kind) || (who.byKey() && !permission.GetByKey()) {
		refused := caller{name: who.name}
		return refused, status.Errorf(codes.PermissionDenied, "%s is not for %s", rpcName(method), who.name)
	}
	return who, c.unlocked(who, method)
}

// newcomer is a machine that proves a key.
func newcomer(ctx context.Context) (caller, error) {
	from, _ := peer.FromContext(ctx)
	info, ok := from.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return caller{}, status.Error(codes.Unauthenticated, "the connection proves no key")
	}
	key, err := identity.PinnedKey(info.State.PeerCertificates[0])
	if err != nil {
		return caller{}, status.Error(codes.Unauthenticated, err.Error())
	}
	return caller{kind: clusterv1.Caller_CALLER_NEWCOMER, name: "newcomer " + identity.NodeID(key), key: key}, nil
}

// permissionOf is what an RPC declares.
func permissionOf(method string) *clusterv1.Permission {
	name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(method, "/"), "/", "."))
	descriptor, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if err != nil {
		return nil
	}
	permission, _ := proto.GetExtension(descriptor.Options(), clusterv1.E_Permission).(*clusterv1.Permission)
	return permission
}

func rpcName(method string) string { return method[strings.LastIndexByte(method, '/')+1:] }

// unary locks the cluster from the admission of a call to its answer, so that methods need no lock.
func (c *Cluster) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	who, err := c.admit(ctx, info.FullMethod)
	var response any
	if err == nil {
		response, err = handler(context.WithValue(ctx, callerKey{}, who), request)
	}
	message, _ := request.(proto.Message)
	c.record(ctx, info.FullMethod, who, message, err)
	if err != nil {
		return nil, err
	}
	if name := rpcName(info.FullMethod); !strings.HasPrefix(name, "Get") && !strings.HasPrefix(name, "List") {
		c.wake()
	}
	// gRPC sends the answer later, when the lock is free and the original may change.
	return proto.Clone(response.(proto.Message)), nil
}

func (c *Cluster) stream(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	c.mu.Lock()
	who, err := c.admit(stream.Context(), info.FullMethod)
	c.record(stream.Context(), info.FullMethod, who, nil, err)
	c.mu.Unlock()
	if err != nil {
		return err
	}
	return handler(service, stream)
}

// clientPort is the port that the audit log shows, since nobody knows the real one beforehand.
const clientPort = "50000"

// record keeps a call of the cluster API in the audit log. Calls of a node's own API are the node's to keep.
func (c *Cluster) record(ctx context.Context, method string, who caller, request proto.Message, err error) {
	if !permissionOf(method).GetAudited() || !strings.HasPrefix(method, "/reeve.cluster.v1.") {
		return
	}
	entry := &clusterv1.AuditEntry{
		Caller: who.name, Kind: who.kind, Rpc: rpcName(method), Parameters: rpcoption.Shown(request), Code: status.Code(err).String(),
	}
	if err != nil {
		entry.Reason = status.Convert(err).Message()
	}
	if from, ok := peer.FromContext(ctx); ok {
		if host, _, err := net.SplitHostPort(from.Addr.String()); err == nil {
			entry.Address = net.JoinHostPort(host, clientPort)
		}
	}
	c.append(entry)
	c.wake()
}

// append adds an entry to the audit log.
func (c *Cluster) append(entry *clusterv1.AuditEntry) {
	entry.Sequence, entry.Time = uint64(len(c.audit)+1), timestamppb.New(c.clock)
	if len(c.nodes) > 0 {
		entry.NodeId = c.nodes[0].GetRecord().GetId()
	}
	c.audit = append(c.audit, entry)
}

// callerOf is who made a call that was admitted.
func callerOf(ctx context.Context) caller {
	who, _ := ctx.Value(callerKey{}).(caller)
	return who
}
