package target

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/proto/identity"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// Served is where an instance of a role serves something.
type Served struct {
	NodeID, Address string
	// Healthy says that the node's heartbeat is fresh.
	Healthy bool
	// Ready says that the instance was, when its node last reported it.
	Ready bool
}

// Well says that nothing is known which would keep the instance from serving.
func (s Served) Well() bool { return s.Healthy && s.Ready }

// rank is smaller the more is to be hoped of an instance. One of a node that lives is there at least to say what is wrong.
func (s Served) rank() int {
	switch {
	case s.Well():
		return 0
	case s.Healthy:
		return 1
	default:
		return 2
	}
}

// Served returns where the instances of a role serve an endpoint, as their nodes have reported: those that are Ready on healthy nodes first, then others of healthy nodes.
func (t *Target) Served(ctx context.Context, role, endpoint string) ([]Served, error) {
	nodes, err := t.ListNodes(ctx)
	if err != nil {
		return nil, err
	}
	var all []Served
	for _, node := range nodes {
		for _, instance := range node.GetStatus().GetInstances() {
			for _, e := range instance.GetEndpoints() {
				if instance.GetRole() == role && e.GetName() == endpoint {
					all = append(all, Served{
						NodeID: node.GetRecord().GetId(), Address: e.GetAddress(),
						Healthy: node.GetHealthy(), Ready: instance.GetState() == hostv1.InstanceState_INSTANCE_STATE_READY,
					})
				}
			}
		}
	}
	if len(all) == 0 {
		return nil, fault.New(fault.NotFound, "no node has told where the role "+role+" serves", "`reeve node list` shows the nodes and `reeve status NODE` their roles; `reeve node role add NODE "+role+"` gives a node the role.")
	}
	slices.SortStableFunc(all, func(a, b Served) int { return cmp.Compare(a.rank(), b.rank()) })
	return all, nil
}

// roleSession is how long a session lasts that is begun for the calls of one command, by who has the owner key and no session. Roles let nobody in for longer than an hour.
const roleSession = time.Hour

// Role returns a connection to an endpoint at which instances of a role let operators in, whichever of them answers. The caller proves itself by the certificate of a session: its own, or one that is
// begun for this and kept nowhere.
func (t *Target) Role(ctx context.Context, role, endpoint string) (*grpc.ClientConn, error) {
	served, err := t.Served(ctx, role, endpoint)
	if err != nil {
		return nil, err
	}
	var addresses []string
	for _, each := range served {
		addresses = append(addresses, each.Address)
	}
	return t.dialRole(ctx, role, "", addresses...)
}

// RoleOn is Role for the instance of one node, which serves at an address: no other instance is taken for it.
func (t *Target) RoleOn(ctx context.Context, role, nodeID, address string) (*grpc.ClientConn, error) {
	return t.dialRole(ctx, role, nodeID, address)
}

// dialRole returns a connection to whichever instance of a role answers at one of the addresses; nodeID is the one on which it has to run, if not empty.
func (t *Target) dialRole(ctx context.Context, role, nodeID string, addresses ...string) (*grpc.ClientConn, error) {
	proof, err := t.roleProof(ctx, role)
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(anyOf+":///",
		grpc.WithResolvers(resolved(addresses)),
		grpc.WithTransportCredentials(credentials.NewTLS(t.trust.role(role, nodeID, proof))),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: probeTimeout}),
		receiveLimit(), direct())
	if err != nil {
		return nil, fault.Wrap(fault.Failed, err, "no connection to the role "+role+" can be made", "")
	}
	t.others = append(t.others, conn)
	return conn, nil
}

// roleProof is by what the caller proves itself to roles.
func (t *Target) roleProof(ctx context.Context, role string) (proof, error) {
	if err := t.connect(ctx); err != nil {
		return nil, err
	}
	if t.session.present != nil {
		return t.trust.proof, nil
	}
	if t.forRoles == nil {
		bounded, cancel := context.WithTimeout(ctx, CallTimeout)
		defer cancel()
		session, err := t.issue(bounded, t.curators, roleSession)
		if err != nil {
			return nil, fault.FromRPC(err, "cannot call the role "+role+": the cluster gives no session", "")
		}
		t.forRoles = session
	}
	certificate := t.forRoles.Certificate()
	return func() (*tls.Certificate, error) { return certificate, nil }, nil
}

// role is how the caller speaks to an instance of a role, on any node if nodeID is empty: it is verified that it is one.
func (t *trust) role(role, nodeID string, proof proof) *tls.Config {
	return bySPIFFE(proof, func(state tls.ConnectionState) error { return t.verifyRole(state, role, nodeID) })
}

func (t *trust) verifyRole(state tls.ConnectionState, role, nodeID string) error {
	uris, err := t.verify(state, "the role", "")
	if err != nil {
		return err
	}
	if len(uris) == 1 {
		node, _, _ := strings.Cut(strings.TrimPrefix(uris[0].Path, "/node/"), "/")
		if node != "" && (nodeID == "" || node == nodeID) && uris[0].String() == identity.RoleURI(t.domain, node, role).String() {
			return nil
		}
	}
	if nodeID != "" {
		return fmt.Errorf("the certificate is for %v, not for the role %s of node %s of this cluster", uris, role, nodeID)
	}
	return fmt.Errorf("the certificate is for %v, not for the role %s of this cluster", uris, role)
}

// Arguments are those with which another command, in whatever directory and environment, takes the same way.
func (t *Target) Arguments() ([]string, error) {
	w := t.way
	var arguments []string
	file := func(flag, path string) error {
		absolute, err := filepath.Abs(path)
		arguments = append(arguments, flag, absolute)
		return err
	}
	var err error
	switch {
	case w.dir != "":
		err = file("--dir", w.dir)
	case w.socket != "":
		err = file("--socket", w.socket)
	case w.context != nil:
		arguments = []string{"--context", w.context.Name}
	default:
		arguments = []string{"--address", w.address}
		err = file("--ca", w.caFile)
	}
	if w.keyFile != "" && w.dir == "" {
		err = errors.Join(err, file("--owner-key", w.keyFile))
	}
	return arguments, err
}
