package measures

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"filippo.io/age"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/proto/remit"
)

// patience is how long anything that is measured may take.
const patience = time.Minute

// node is a cluster of one node, or one of a cluster of several, which may run or not.
type node struct {
	bed   *Bed
	at    place
	owner ed25519.PrivateKey
	// address is where it listens: one of the loopback network. port is where its curator does; 0: any.
	address string
	port    int
	// raft is the configuration of its role consensus; empty: the role's own.
	raft string
	// ticket is the file with that by which it registers; empty: it makes a cluster.
	ticket string
	// recovery is the owner's recovery key; nil: the volume is plain.
	recovery *age.X25519Identity
	core     *process
	local    *grpc.ClientConn
	watch    grpc.ServerStreamingClient[nodev1.WatchStatusResponse]
	// rewatch makes another stream in the place of watch.
	rewatch func() error
	cancel  context.CancelFunc
	// unlocked says that the volume was given its recovery key since the start.
	unlocked bool
	// last is the newest status that was read.
	last *nodev1.Status
}

// newNode makes the files of a node with a kind of volume. close stops what runs and removes them.
func (b *Bed) newNode(kind storage.VolumeKind) (*node, error) {
	var recovery *age.X25519Identity
	if kind == storage.Fscrypt {
		if err := needsRoot(); err != nil {
			return nil, err
		}
		var err error
		if recovery, err = age.GenerateX25519Identity(); err != nil {
			return nil, err
		}
	}
	_, owner, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	return (&node{bed: b, owner: owner, address: "127.0.0.1", recovery: recovery}).make()
}

// make makes the files of a node.
func (n *node) make() (*node, error) {
	at, err := n.bed.place()
	if err != nil {
		return nil, err
	}
	n.at = at
	document, err := protojson.Marshal(n.parameters(n.owner.Public().(ed25519.PublicKey)))
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(at.work, "hosts"), []byte("127.0.0.1\tlocalhost\n"), 0o644); err != nil {
		return nil, err
	}
	return n, os.WriteFile(n.parametersFile(), document, 0o644)
}

func (n *node) parametersFile() string { return filepath.Join(n.at.work, "reeved.json") }

// parameters are those of `reeve dev up`, with the run directory on a tmpfs.
func (n *node) parameters(owner ed25519.PublicKey) *nodev1.Parameters {
	plugin := func(name string) *nodev1.BuiltinPlugin {
		return &nodev1.BuiltinPlugin{Path: n.bed.Programs.plugin(name)}
	}
	hostsfile := plugin("hostsfile")
	hostsfile.Grants = []*nodev1.BuiltinGrants{{Role: "hostsfile", Grants: []*rolev1.Grant{
		{Name: "replace-file", Parameters: map[string]string{"path": filepath.Join(n.at.work, "hosts")}},
		{Name: "connect", Parameters: map[string]string{"port": "53"}},
	}}}
	parameters := &nodev1.Parameters{
		Version: "reeve.node.v1",
		Directories: &nodev1.Directories{
			System: filepath.Join(n.at.work, "system"), Data: filepath.Join(n.at.work, "data"), Run: filepath.Join(n.at.run, "n"),
		},
		Network: &nodev1.Network{Addresses: []string{n.address}, ApiListen: n.address + ":0"},
		Volume:  &nodev1.Volume{Kind: &nodev1.Volume_Plain{Plain: &nodev1.PlainVolume{}}},
		Plugins: []*nodev1.BuiltinPlugin{plugin("consensus"), plugin("curator"), hostsfile},
	}
	roles := []*nodev1.BootstrapRole{
		{Role: "consensus", Configuration: n.raft}, {Role: "curator", Configuration: fmt.Sprintf(`{"listen":"%s:%d"}`, n.address, n.port)},
	}
	if n.ticket == "" {
		parameters.Cluster = &nodev1.Parameters_Bootstrap{Bootstrap: &nodev1.Bootstrap{
			OwnerPublicKey: owner, Roles: append(roles, &nodev1.BootstrapRole{Role: "hostsfile"}),
		}}
	} else {
		parameters.Cluster = &nodev1.Parameters_Register{Register: &nodev1.Register{From: &nodev1.Register_TicketFile{TicketFile: n.ticket}, Roles: roles}}
	}
	if n.recovery != nil {
		parameters.Volume.Kind = &nodev1.Volume_Fscrypt{Fscrypt: &nodev1.FscryptVolume{Image: &nodev1.LoopImage{SizeBytes: new(int64(imageSize))}}}
		parameters.GetBootstrap().RecoveryRecipient = n.recovery.Recipient().String()
	}
	return parameters
}

// layout is where the node keeps what.
func (n *node) layout() storage.Layout { return storage.NewLayout(n.parameters(nil).GetDirectories()) }

// start executes reeved and follows its status.
func (n *node) start(ctx context.Context) error {
	var err error
	if n.core, err = startProcess(filepath.Join(n.at.work, "log"), nil, n.bed.Programs.reeved(), "--parameters", n.parametersFile()); err != nil {
		return err
	}
	return n.follow(ctx)
}

// follow connects to the node's own API, which may not be there yet.
func (n *node) follow(ctx context.Context) error {
	var err error
	n.local, err = grpc.NewClient("passthrough:///node.sock", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", n.layout().NodeSocket())
		}),
		// To look costs next to nothing, and what is measured must not wait for the measure.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 2 * time.Millisecond, Multiplier: 1, MaxDelay: 2 * time.Millisecond}, MinConnectTimeout: time.Second,
		}))
	if err != nil {
		return err
	}
	ctx, n.cancel = context.WithCancel(ctx)
	// A core that ends by itself before it listens would be waited for in vain.
	go func(cancel context.CancelFunc, core *process) {
		select {
		case <-core.ended:
			cancel()
		case <-ctx.Done():
		}
	}(n.cancel, n.core)
	defer time.AfterFunc(patience, n.cancel).Stop()
	n.rewatch = func() error {
		stream, err := nodev1.NewNodeServiceClient(n.local).WatchStatus(ctx, &nodev1.WatchStatusRequest{}, grpc.WaitForReady(true))
		n.watch = stream
		return err
	}
	if err := n.rewatch(); err != nil {
		return fmt.Errorf("the node does not answer: %w\n%s", err, n.core.lastLines())
	}
	return nil
}

// await reads the node's status until it is as it should be. A volume that waits for its owner gets the recovery key.
func (n *node) await(ctx context.Context, what string, ok func(*nodev1.Status) bool) error {
	deadline := time.Now().Add(patience)
	for n.last == nil || !ok(n.last) {
		response, err := n.next(ctx, deadline)
		if err != nil {
			return fmt.Errorf("%s: %w\nlast seen: %v\n%s", what, err, n.last, n.core.lastLines())
		}
		n.last = response.GetStatus()
		if err := n.unlock(ctx); err != nil {
			return fmt.Errorf("%s: %w\n%s", what, err, n.core.lastLines())
		}
	}
	return nil
}

func (n *node) next(ctx context.Context, deadline time.Time) (*nodev1.WatchStatusResponse, error) {
	// The stream ends with the node, at the latest: a status that never comes ends it here.
	timer := time.AfterFunc(time.Until(deadline), n.cancel)
	defer timer.Stop()
	defer context.AfterFunc(ctx, n.cancel)()
	for {
		response, err := n.watch.Recv()
		if err == nil {
			return response, nil
		}
		// The API of a node whose volume is not open ends when it is opened, and the whole node's comes in its place. A plain one has it too, if it is slow.
		if status.Code(err) == codes.Unavailable && !n.core.hasEnded() {
			if err = n.rewatch(); err == nil {
				continue
			}
		}
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case n.core.hasEnded():
			return nil, fmt.Errorf("reeved has ended by itself: %w", err)
		case status.Code(err) == codes.Canceled:
			return nil, fmt.Errorf("not within %s", patience)
		}
		return nil, err
	}
}

// instanceOf returns the instance of a role in a status; nil if there is none.
func instanceOf(s *nodev1.Status, name string) *clusterv1.InstanceStatus {
	return instanceIn(s.GetNode(), name)
}

func instanceIn(s *clusterv1.NodeStatus, name string) *clusterv1.InstanceStatus {
	for _, instance := range s.GetInstances() {
		if instance.GetRole() == name {
			return instance
		}
	}
	return nil
}

func ready(s *nodev1.Status, names ...string) bool {
	for _, name := range names {
		if instanceOf(s, name).GetState() != hostv1.InstanceState_INSTANCE_STATE_READY {
			return false
		}
	}
	return true
}

func home(s *nodev1.Status) bool {
	return s.GetMembership().GetState() == hostv1.MembershipState_MEMBERSHIP_STATE_HOME
}

// up waits until the node is Home and all of its first roles are Ready.
func (n *node) up(ctx context.Context) error {
	return n.await(ctx, "the node is up", func(s *nodev1.Status) bool { return home(s) && ready(s, "consensus", "curator", "hostsfile") })
}

// stop stops the node with all of its roles.
func (n *node) stop() error {
	if n.core == nil {
		return nil
	}
	if n.cancel != nil {
		n.cancel()
	}
	err := n.core.stop()
	if n.local != nil {
		err = errors.Join(err, n.local.Close())
	}
	if err != nil {
		// A core that did not stop may have left roles.
		err = errors.Join(err, exec.Command(n.bed.Programs.reeved(), "reap", "--parameters", n.parametersFile()).Run())
	}
	n.core, n.local, n.watch, n.rewatch, n.cancel, n.last, n.unlocked = nil, nil, nil, nil, nil, nil, false
	return err
}

// close stops the node and removes its files.
func (n *node) close() error {
	err := n.stop()
	if n.recovery != nil {
		unmountLeft(n.layout())
	}
	// A core that was killed, and not started again, has left those of its roles mounted.
	spools, _ := filepath.Glob(filepath.Join(n.layout().Run, "instances", "*.err"))
	for _, spool := range spools {
		_ = unix.Unmount(spool, unix.MNT_DETACH)
	}
	return errors.Join(err, n.at.remove())
}

// runningNode is newNode, start and up.
func (b *Bed) runningNode(ctx context.Context, kind storage.VolumeKind) (*node, error) {
	n, err := b.newNode(kind)
	if err != nil {
		return nil, err
	}
	if err = n.start(ctx); err == nil {
		err = n.up(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

// management connects to the cluster API, as the command line does for each command: by mutual TLS, with a certificate of the owner's key.
func (n *node) management() (clusterv1.ManagementServiceClient, func(), error) {
	if len(n.last.GetCluster().GetCurators()) == 0 {
		return nil, nil, errors.New("the node knows no curator")
	}
	return n.managementAt(n.last.GetCluster().GetCurators()[0])
}

// managementAt connects to the cluster API at one curator.
func (n *node) managementAt(curator string) (clusterv1.ManagementServiceClient, func(), error) {
	credentials, err := n.asOwner()
	if err != nil {
		return nil, nil, err
	}
	conn, err := grpc.NewClient("passthrough:///"+curator, grpc.WithTransportCredentials(credentials))
	if err != nil {
		return nil, nil, err
	}
	return clusterv1.NewManagementServiceClient(conn), func() { _ = conn.Close() }, nil
}

// asOwner is how the owner and a curator prove themselves to each other.
func (n *node) asOwner() (credentials.TransportCredentials, error) {
	access := n.last.GetCluster()
	pool := x509.NewCertPool()
	domain := ""
	for _, der := range access.GetCaCertificates() {
		certificate, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, err
		}
		pool.AddCert(certificate)
		for _, uri := range certificate.URIs {
			domain = uri.Host
		}
	}
	if domain == "" {
		return nil, errors.New("the node does not know its cluster's CA")
	}
	certificate, err := identity.SelfSigned(n.owner, time.Now())
	if err != nil {
		return nil, err
	}
	return credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: pool, ServerName: identity.CuratorName(domain), Certificates: []tls.Certificate{certificate},
	}), nil
}

// addPlugin brings an executable to the node and into the catalog.
func (n *node) addPlugin(ctx context.Context, file string) error {
	executable, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = executable.Close() }()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	stream, err := nodev1.NewNodeServiceClient(n.local).ImportPlugin(ctx)
	if err != nil {
		return err
	}
	for buffer := make([]byte, 512<<10); ; {
		count, err := io.ReadFull(executable, buffer)
		if count > 0 {
			if err := stream.Send(&nodev1.ImportPluginRequest{Data: buffer[:count]}); err != nil {
				break // The answer says why.
			}
		}
		if err != nil {
			break
		}
	}
	imported, err := stream.CloseAndRecv()
	if err != nil {
		return fmt.Errorf("import %s: %w", file, err)
	}
	management, done, err := n.management()
	if err != nil {
		return err
	}
	defer done()
	_, err = management.AddPlugin(ctx, &clusterv1.AddPluginRequest{
		Manifest: imported.GetManifest(), Digests: map[string]string{imported.GetPlatform(): imported.GetDigest()},
		Approve: true, Grants: remit.Wanted(imported.GetManifest()),
	})
	return err
}

// addRole has the node run a role, by a connection of its own.
func (n *node) addRole(ctx context.Context, name string) error {
	management, done, err := n.management()
	if err != nil {
		return err
	}
	defer done()
	return add(ctx, management, n.last.GetNodeId(), name)
}

// removeRole undoes addRole and waits until the instance is gone.
func (n *node) removeRole(ctx context.Context, name string) error {
	management, done, err := n.management()
	if err != nil {
		return err
	}
	defer done()
	call, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err = management.RemoveRole(call, &clusterv1.RemoveRoleRequest{NodeId: n.last.GetNodeId(), Role: name}); err != nil {
		return err
	}
	return n.await(ctx, name+" is gone", func(s *nodev1.Status) bool { return instanceOf(s, name) == nil })
}
