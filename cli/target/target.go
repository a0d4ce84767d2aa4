package target

import (
	"context"
	"crypto/x509"
	"errors"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// CallTimeout is how long one question to a node or a curator may take. Each is answered from memory or with a few writes to the store; a
// store that has just lost its leader needs a second or two.
const CallTimeout = 15 * time.Second

// Target is the cluster that a command is for. It is for one goroutine.
type Target struct {
	options Options
	// local is nil with Options.Address.
	local *grpc.ClientConn
	// curators and trust are nil until the cluster API is needed.
	curators *grpc.ClientConn
	trust    *trust
	others   []*grpc.ClientConn
}

// Open finds the cluster. With a dev directory a node has to run there; nothing else is connected before it is needed.
func Open(ctx context.Context, options Options) (*Target, error) {
	options, err := options.resolve()
	if err != nil {
		return nil, err
	}
	t := &Target{options: options}
	if options.Dir != "" {
		if t.local, err = connectLocal(ctx, options.Dir); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// receiveLimit lets every answer of a node or a curator come through.
func receiveLimit() grpc.DialOption {
	return grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(limits.Message))
}

// Close closes all connections.
func (t *Target) Close() error {
	var problems []error
	for _, conn := range append(t.others, t.local, t.curators) {
		if conn != nil {
			problems = append(problems, conn.Close())
		}
	}
	t.local, t.curators, t.others = nil, nil, nil
	return errors.Join(problems...)
}

// LocalStatus returns the status of the dev directory's node. It is a usage fault if the cluster was named by an address.
func (t *Target) LocalStatus(ctx context.Context) (*nodev1.Status, error) {
	if t.local == nil {
		return nil, fault.New(fault.Usage, "no node is named", "Name one; `reeve node list` shows them.")
	}
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	response, err := nodev1.NewNodeServiceClient(t.local).GetStatus(ctx, &nodev1.GetStatusRequest{})
	if err != nil {
		return nil, fault.FromRPC(err, "the status of the node in "+t.options.Dir+" cannot be had", "")
	}
	return response.GetStatus(), nil
}

// Management returns the cluster API.
func (t *Target) Management(ctx context.Context) (clusterv1.ManagementServiceClient, error) {
	if t.curators == nil {
		if err := t.connectCurators(ctx); err != nil {
			return nil, err
		}
	}
	return clusterv1.NewManagementServiceClient(t.curators), nil
}

func (t *Target) connectCurators(ctx context.Context) error {
	addresses, certificates, err := t.findCurators(ctx)
	if err != nil {
		return err
	}
	if t.trust == nil {
		file := t.options.OwnerKeyFile
		if file == "" {
			file = filepath.Join(t.options.Dir, "owner.key")
		}
		owner, err := readOwnerKey(file)
		if err != nil {
			return err
		}
		if t.trust, err = newTrust(certificates, owner); err != nil {
			return fault.Wrap(fault.Failed, err, "the cluster's CA is not usable", "")
		}
	}
	var state resolver.State
	for _, address := range addresses {
		state.Addresses = append(state.Addresses, resolver.Address{Addr: address})
	}
	curators := manual.NewBuilderWithScheme("curators")
	curators.InitialState(state)
	t.curators, err = grpc.NewClient("curators:///",
		grpc.WithResolvers(curators),
		grpc.WithTransportCredentials(credentials.NewTLS(t.trust.curator())),
		receiveLimit())
	if err != nil {
		return fault.Wrap(fault.Failed, err, "no connection to a curator can be made", "")
	}
	return nil
}

// findCurators returns where the cluster API is served and the CA by which to know it.
func (t *Target) findCurators(ctx context.Context) (addresses []string, ca []*x509.Certificate, err error) {
	if t.local == nil {
		ca, err = readCA(t.options.CAFile)
		return []string{t.options.Address}, ca, err
	}
	status, err := t.LocalStatus(ctx)
	if err != nil {
		return nil, nil, err
	}
	if len(status.GetCluster().GetCurators()) == 0 {
		what := "the node in " + t.options.Dir + " knows no curator"
		if reason := status.GetMembership().GetReason(); reason != "" {
			what += " (" + reason + ")"
		}
		return nil, nil, fault.New(fault.Unreachable, what, "Run `reeve status` to see how the node is.")
	}
	ca, err = parseCA(status.GetCluster().GetCaCertificates())
	if err != nil {
		return nil, nil, fault.Wrap(fault.Unreachable, err, "the node in "+t.options.Dir+" does not know its cluster's CA yet",
			"Run `reeve status` to see how the node is.")
	}
	return status.GetCluster().GetCurators(), ca, nil
}

// forgetCurators closes the connection to the curators, so that the next call looks for them again: one that restarts may have another port.
func (t *Target) forgetCurators() {
	if t.curators != nil {
		_ = t.curators.Close()
		t.curators = nil
	}
}

// HasLocal says whether the cluster was named by a dev directory, whose node is then the local one.
func (t *Target) HasLocal() bool { return t.local != nil }
