package target

import (
	"context"
	"crypto/x509"
	"errors"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/cli/contexts"
	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/proto/limits"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// CallTimeout is how long one question to a node or a curator may take. Each is answered from memory or with a few writes to the store; a
// store that has just lost its leader needs a second or two.
const CallTimeout = 15 * time.Second

// probeTimeout is how long a curator or a node may take to be connected before another way is tried: a machine that is there answers in less
// from anywhere, and the whole of a call has CallTimeout.
const probeTimeout = 5 * time.Second

// Target is the cluster that a command is for. It is for one goroutine.
type Target struct {
	way      way
	contexts *contexts.Store
	now      func() time.Time
	// local is nil if the way names no socket of a node, or nobody listens at that of a context.
	local *grpc.ClientConn
	// curators and trust are nil until the cluster API is needed.
	curators *grpc.ClientConn
	trust    *trust
	others   []*grpc.ClientConn
	// forRoles is the session by which roles are called, of who has none; nil until it is needed.
	forRoles *contexts.Session
	// found are the addresses at which the curators were last looked for.
	found []string
	// inside is the address that leads to a curator from this machine only; empty: none does.
	inside string
	// known is where the cluster of a context is; nil for other ways.
	known   *known
	session sessionState
}

// Open finds the cluster. With a dev directory or a socket a node has to run there; nothing else is connected before it is needed.
func Open(ctx context.Context, options Options) (*Target, error) {
	w, err := options.resolve()
	if err != nil {
		return nil, err
	}
	return open(ctx, options, w)
}

func open(ctx context.Context, options Options, w way) (*Target, error) {
	t := &Target{way: w, contexts: options.Contexts, now: options.Now}
	if t.now == nil {
		t.now = time.Now
	}
	var err error
	switch {
	case w.context != nil:
		t.known = newKnown(w.context)
		err = t.openContextSocket(ctx)
	case w.local() != "":
		t.local, err = connectLocal(ctx, w)
		if w.dir != "" && fault.CodeOf(err) == fault.Unreachable {
			err = t.openOther(ctx, err)
		}
	}
	if err != nil {
		return nil, err
	}
	return t, nil
}

// openOther connects to another node of a dev directory whose first one does not run: each leads to the cluster. The error is that of the first one if none does.
func (t *Target) openOther(ctx context.Context, first error) error {
	others, err := filepath.Glob(filepath.Join(t.way.dir, nodesName, "[2-9]"))
	if err != nil {
		return first
	}
	for _, dir := range others {
		other := way{dir: dir, keyFile: t.way.keyFile}
		if conn, err := connectLocal(ctx, other); err == nil {
			t.way, t.local = other, conn
			return nil
		}
	}
	return first
}

// openContextSocket connects to the node of a context, if one listens there: the context knows other ways, too.
func (t *Target) openContextSocket(ctx context.Context) error {
	if t.way.context.Socket == "" {
		return nil
	}
	conn, err := connectLocal(ctx, t.way)
	if err != nil {
		return nil
	}
	t.local = conn
	status, err := t.LocalStatus(ctx)
	if err != nil {
		return errors.Join(t.forgetLocal(), ctx.Err())
	}
	if there := status.GetCluster().GetClusterId(); there != "" && there != t.way.context.ClusterID() {
		name := t.way.context.Name
		return errors.Join(fault.New(fault.Refused, "the node at "+t.way.local()+" is of cluster "+there+", and context "+name+" is for cluster "+
			t.way.context.ClusterID(), "If the cluster was made anew, run `reeve context remove "+name+"` and log in again."), t.forgetLocal())
	}
	return nil
}

func (t *Target) forgetLocal() error {
	err := t.local.Close()
	t.local = nil
	return err
}

// receiveLimit lets every answer of a node or a curator come through.
func receiveLimit() grpc.DialOption {
	return grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(limits.Message))
}

// direct has a connection go where its address says. A proxy that the environment names for websites (HTTPS_PROXY) does not lead to a cluster.
func direct() grpc.DialOption { return grpc.WithNoProxy() }

// Close closes all connections, and keeps in the context where its cluster is now.
func (t *Target) Close() error {
	var problems []error
	for _, conn := range append(t.others, t.local, t.curators) {
		if conn != nil {
			problems = append(problems, conn.Close())
		}
	}
	t.local, t.curators, t.others = nil, nil, nil
	if t.way.context != nil {
		t.known.keep(t.contexts, t.way.context.Name)
	}
	return errors.Join(problems...)
}

// anewWithin is how long a node may take to serve its socket anew, whose volume was opened or closed.
const anewWithin = 3 * time.Second

// Anew makes a call of the local node's own API, which may be made twice, and makes it again for 3 s while it is Unavailable: a node whose volume was just
// opened or closed serves its socket anew.
func Anew(ctx context.Context, call func() error) error {
	err := call()
	for began := time.Now(); status.Code(err) == codes.Unavailable && time.Since(began) < anewWithin && ctx.Err() == nil; {
		select {
		case <-ctx.Done():
		case <-time.After(anewWithin / 30):
			err = call()
		}
	}
	return err
}

// LocalStatus returns the status of the local node. It is a usage fault if the way to the cluster is not by one.
func (t *Target) LocalStatus(ctx context.Context) (*nodev1.Status, error) {
	if t.local == nil {
		return nil, fault.New(fault.Usage, "no node is named", "Name one; `reeve node list` shows them.")
	}
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	var response *nodev1.GetStatusResponse
	err := Anew(ctx, func() (err error) {
		response, err = nodev1.NewNodeServiceClient(t.local).GetStatus(ctx, &nodev1.GetStatusRequest{})
		return err
	})
	if err != nil {
		return nil, fault.FromRPC(err, "cannot read the status of "+t.way.node(), "")
	}
	t.inside = response.GetStatus().GetCluster().GetLocalCurator()
	if t.known != nil {
		t.known.setCurators(response.GetStatus().GetCluster().GetCurators())
	}
	return response.GetStatus(), nil
}

func (t *Target) connectCurators(ctx context.Context) error {
	if t.way.context != nil {
		return t.connectContext(ctx)
	}
	addresses, certificates, err := t.findCurators(ctx)
	if err != nil {
		return err
	}
	if err := t.prepareTrust(certificates); err != nil {
		return err
	}
	t.curators, err = t.dialCurators(addresses, t.trust, keyAdvice)
	return err
}

// connectContext connects to a curator of a context's cluster. Where none answers, the nodes are asked where they are now.
func (t *Target) connectContext(ctx context.Context) error {
	certificates, err := t.way.context.CACertificates()
	if err != nil {
		return fault.Wrap(fault.Failed, err, "the CA of context "+t.way.context.Name+" is not usable", "")
	}
	if err := t.prepareTrust(certificates); err != nil {
		return err
	}
	if t.local != nil {
		if _, err := t.LocalStatus(ctx); fault.CodeOf(err) != fault.OK && fault.CodeOf(err) != fault.Unreachable {
			return err
		}
	}
	if t.curators, err = t.dialCurators(t.withInside(t.known.addresses()), t.trust, t.advice()); err != nil {
		return err
	}
	if connected(ctx, t.curators) {
		return nil
	}
	t.askNodes(ctx, func(said *nodev1.Status) bool {
		curators := said.GetCluster().GetCurators()
		if len(curators) == 0 {
			return false
		}
		conn, err := t.dialCurators(curators, t.trust, t.advice())
		if err != nil {
			return false
		}
		if !connected(ctx, conn) {
			_ = conn.Close()
			return false
		}
		t.forgetCurators()
		t.curators = conn
		t.known.setCurators(curators)
		return true
	})
	// If nobody is there, the first call says why.
	return ctx.Err()
}

// prepareTrust sets whom the caller believes and what it shows, unless that is known.
func (t *Target) prepareTrust(certificates []*x509.Certificate) error {
	if t.trust != nil {
		// A session may have ended meanwhile.
		return t.checkSession()
	}
	proof, err := t.chooseProof()
	if err != nil {
		return err
	}
	trust, err := newTrust(certificates, proof, t.now, t.newCAAdvice())
	if err != nil {
		return fault.Wrap(fault.Failed, err, "the cluster's CA is not usable", "")
	}
	t.trust = trust
	return nil
}

// advice is what to do about what the cluster answers.
func (t *Target) advice() advice {
	if t.session.present != nil {
		return t.sessionAdvice
	}
	return keyAdvice
}

// dialCurators returns a connection to those of the curators that answer. It is made when it is needed.
func (t *Target) dialCurators(addresses []string, trust *trust, advice advice) (*grpc.ClientConn, error) {
	options := []grpc.DialOption{
		grpc.WithResolvers(resolved(addresses)),
		grpc.WithDefaultServiceConfig(balance),
		grpc.WithTransportCredentials(credentials.NewTLS(trust.curator())),
		grpc.WithChainStreamInterceptor(adviseStream(advice), t.untilRenewal),
		receiveLimit(),
		direct(),
	}
	if t.known == nil {
		options = append(options, grpc.WithChainUnaryInterceptor(adviseUnary(advice), again))
	} else {
		options = append(options, grpc.WithChainUnaryInterceptor(adviseUnary(advice), t.known.learn, again))
	}
	t.found = addresses
	conn, err := grpc.NewClient(anyOf+":///", options...)
	if err != nil {
		return nil, fault.Wrap(fault.Failed, err, "no connection to a curator can be made", "")
	}
	return conn, nil
}

// connected waits until a connection is there, or cannot be made.
func connected(ctx context.Context, conn *grpc.ClientConn) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	conn.Connect()
	for {
		switch state := conn.GetState(); state {
		case connectivity.Ready:
			return true
		case connectivity.TransientFailure, connectivity.Shutdown:
			return false
		default:
			if !conn.WaitForStateChange(ctx, state) {
				return false
			}
		}
	}
}

// findCurators returns where the cluster API is served and the CA by which to know it, without a context.
func (t *Target) findCurators(ctx context.Context) (addresses []string, ca []*x509.Certificate, err error) {
	if t.local == nil {
		ca, err = ReadCA(t.way.caFile)
		return []string{t.way.address}, ca, err
	}
	status, err := t.LocalStatus(ctx)
	if err != nil {
		return nil, nil, err
	}
	addresses = t.withInside(status.GetCluster().GetCurators())
	if len(addresses) == 0 {
		if locked(status) {
			return nil, nil, fault.New(fault.Unreachable, t.way.node()+" knows no curator, since "+output.ExplainClosed(status.GetStorage()),
				"Run `reeve status` to see what it waits for.")
		}
		what := t.way.node() + " knows no curator"
		if reason := status.GetMembership().GetReason(); reason != "" {
			what += " (" + reason + ")"
		}
		return nil, nil, fault.New(fault.Unreachable, what, "Run `reeve status` to see how the node is.")
	}
	ca, err = t.localCA(status)
	return addresses, ca, err
}

// withInside puts the address that leads to a curator from this machine only before the others.
func (t *Target) withInside(curators []string) []string {
	if t.inside == "" || slices.Contains(curators, t.inside) {
		return slices.Clone(curators)
	}
	return append([]string{t.inside}, curators...)
}

// forgetCurators closes the connection to the curators, so that the next call looks for them again: one that restarts may have another port.
func (t *Target) forgetCurators() {
	if t.curators != nil {
		_ = t.curators.Close()
		t.curators = nil
	}
}

// HasLocal says whether the way to the cluster is by a node of this machine, which is then the local one.
func (t *Target) HasLocal() bool { return t.local != nil }

// Directory is the dev directory by which the cluster was found; empty: it was found otherwise.
func (t *Target) Directory() string { return t.way.dir }

// CA returns the certificates of the cluster's CA, as the way to the cluster knows them; the cluster is not asked.
func (t *Target) CA(ctx context.Context) ([]*x509.Certificate, error) {
	switch {
	case t.way.context != nil:
		return t.way.context.CACertificates()
	case t.local == nil:
		return ReadCA(t.way.caFile)
	}
	status, err := t.LocalStatus(ctx)
	if err != nil {
		return nil, err
	}
	return t.localCA(status)
}

func (t *Target) localCA(status *nodev1.Status) ([]*x509.Certificate, error) {
	ca, err := parseCA(status.GetCluster().GetCaCertificates())
	if err != nil {
		return nil, fault.Wrap(fault.Unreachable, err, t.way.node()+" does not know its cluster's CA yet",
			"Run `reeve status` to see how the node is.")
	}
	return ca, nil
}

// Curators are the addresses at which the cluster API was last looked for, without the one that only leads there from this machine, unless there is no other; none before it was needed.
func (t *Target) Curators() []string {
	if list := slices.DeleteFunc(slices.Clone(t.found), func(address string) bool { return address == t.inside }); len(list) > 0 {
		return list
	}
	return slices.Clone(t.found)
}
