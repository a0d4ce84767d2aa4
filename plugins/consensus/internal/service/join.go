package service

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/consensus/internal/desired"
	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
	"github.com/reeveproject/reeve/plugins/consensus/internal/steps"
	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/proto/identity"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/sdk/checkpoint"
)

const (
	// joinBound is how long a member keeps who asks for a place waiting for it.
	joinBound = 20 * time.Second
	// askBound is how long a member is waited for.
	askBound = joinBound + 5*time.Second
	// joinInterval is how often it is looked whether the leader has added the member.
	joinInterval = 50 * time.Millisecond
	// directoryBound is how long the directory is waited for, which comes a moment after the role has started.
	directoryBound = 2 * time.Second
	// listenRetry is the wait before it is tried again to listen.
	listenRetry = time.Second
	// maxJoin bounds the size of a call, in bytes.
	maxJoin = 64 << 10
	// idleBound is after how long without a call a connection is closed: nobody asks often.
	idleBound = time.Minute
)

// peerService serves the other members' roles.
type peerService struct {
	consensusv1.UnimplementedPeerServiceServer
	config      Config
	store       *store.Store
	clusterUser string
}

// servePeers lets others join, until ctx is done.
func servePeers(ctx context.Context, config Config, served *store.Store, clusterUser string) error {
	if config.Network == nil {
		return nil
	}
	server := grpc.NewServer(grpc.Creds(config.Network.Credentials()), grpc.MaxRecvMsgSize(maxJoin),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleBound}))
	consensusv1.RegisterPeerServiceServer(server, &peerService{config: config, store: served, clusterUser: clusterUser})
	defer server.Stop()
	for said := ""; ; {
		listener, err := config.Network.Listen(ctx)
		if err == nil {
			said = ""
			stop := context.AfterFunc(ctx, server.Stop)
			err = server.Serve(listener) // which closes it
			stop()
		}
		if ctx.Err() != nil {
			return nil
		}
		if text := fmt.Sprint(err); text != said {
			config.Log.Warn("no other node can join the store by this one; trying again", "error", err)
			said = text
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(listenRetry):
		}
	}
}

// Join gives the caller's node a place in the store.
func (p *peerService) Join(ctx context.Context, request *consensusv1.JoinRequest) (*consensusv1.JoinResponse, error) {
	node, ok := p.config.Network.Caller(ctx)
	if !ok {
		return nil, status.Error(codes.PermissionDenied, "consensus: only the role that provides the store on another node may join it")
	}
	member, err := peers.ParseMember(request.GetAttempt())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, "consensus: the attempt is not the ID that the member is to have, in hexadecimal digits")
	}
	if err := peers.CheckAddress(request.GetPeerAddress()); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "consensus: %v", err)
	}
	key, err := identity.RequestedKey(request.GetCertificateRequest())
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "consensus: the certificate request cannot be used: %v", err)
	}
	ctx, cancel := context.WithTimeout(ctx, joinBound)
	defer cancel()
	if err := p.compare(node, request); err != nil {
		return nil, err
	}
	if err := p.permit(ctx, node, member); err != nil {
		return nil, err
	}
	p.store.Expect()
	if err := p.announce(ctx, node, member, request.GetPeerAddress()); err != nil {
		return nil, status.Errorf(codes.Unavailable, "consensus: announce the member of node %s: %v", node, err)
	}
	if err := p.awaitMember(ctx, node, member); err != nil {
		return nil, err
	}
	authority, err := p.store.Authority()
	if err != nil || authority == nil {
		return nil, status.Errorf(codes.Unavailable, "consensus: the CA of the store's peers is not there yet: %v", err)
	}
	checkpoint.Before(steps.IssuePeerCertificate)
	certificate, err := authority.Issue(key, peers.Name{Cluster: p.clusterID(), Node: node, Member: member})
	if err != nil {
		return nil, status.Errorf(codes.Internal, "consensus: %v", err)
	}
	checkpoint.After(steps.IssuePeerCertificate)
	answer := &consensusv1.JoinResponse{
		MemberId: peers.FormatMember(member), StoreId: p.store.Server().Cluster().ID().String(),
		Certificate: [][]byte{certificate}, CaCertificates: authority.Certificates(),
	}
	generation := p.store.Generation()
	answer.Generation, answer.GenerationId = generation.Number, generation.ID
	for _, peer := range p.store.Peers() {
		answer.Members = append(answer.Members, &consensusv1.StorePeer{MemberId: peers.FormatMember(peer.ID), NodeId: peer.Node, PeerUrls: peer.URLs, Learner: peer.Learner})
	}
	return answer, nil
}

func (p *peerService) clusterID() string {
	current, _ := p.store.Status().Get()
	return current.ClusterID
}

// permit says why a node cannot have a member: as a quorum has it, not as this one remembers.
func (p *peerService) permit(ctx context.Context, node string, member uint64) error {
	if p.store.Learner() {
		return status.Error(codes.Unavailable, "consensus: the member of this node is itself about to join")
	}
	answer, err := p.store.Client().Get(store.Root(ctx), desired.Key(p.clusterUser))
	if err != nil {
		return status.Errorf(codes.Unavailable, "consensus: read which nodes are to have a member of the store: %v", err)
	}
	// After the read: all that was decided before it is known here now.
	if p.store.Removed(member) {
		return status.Errorf(codes.FailedPrecondition, "consensus: member %s was removed from the store", peers.FormatMember(member))
	}
	wanted := false
	if len(answer.Kvs) > 0 {
		wish, err := desired.Parse(answer.Kvs[0].Value)
		wanted = err == nil && slices.Contains(wish.GetMembers(), node)
	}
	if !wanted {
		return status.Errorf(codes.PermissionDenied, "consensus: node %s is not to have a member of the store", node)
	}
	for _, peer := range p.store.Peers() {
		switch {
		case peer.ID == member && peer.Node != node:
			return status.Errorf(codes.PermissionDenied, "consensus: member %s is of another node", peers.FormatMember(member))
		case peer.Node == node && peer.ID != member:
			return status.Errorf(codes.AlreadyExists, "consensus: the store has member %s of node %s already, whose data is elsewhere or lost", peers.FormatMember(peer.ID), node)
		}
	}
	return nil
}

// compare refuses a node that has data of another store of the cluster, or follows another one. Which of the two counts is for that node to know.
func (p *peerService) compare(node string, request *consensusv1.JoinRequest) error {
	theirs, ours := store.Generation{Number: request.GetGeneration(), ID: request.GetGenerationId()}, p.store.Generation()
	if !request.GetHasData() && !request.GetFollows() || theirs.Same(ours) {
		return nil
	}
	refused := status.Newf(codes.Aborted, "consensus: the member of node %s is of generation %s of the store, and that of node %s of generation %s", node, theirs, p.store.NodeID(), ours)
	detailed, err := refused.WithDetails(&consensusv1.OtherGeneration{Generation: ours.Number, GenerationId: ours.ID})
	if err != nil {
		return refused.Err()
	}
	return detailed.Err()
}

// announce tells the leader, if it does not know.
func (p *peerService) announce(ctx context.Context, node string, member uint64, address string) error {
	if slices.ContainsFunc(p.store.Peers(), func(peer store.Peer) bool { return peer.ID == member }) {
		return nil
	}
	content := peers.Announcement{Member: member, Address: address}.Marshal()
	return checkpoint.Around(steps.Announce, func() error {
		_, err := p.store.Client().Txn(store.Root(ctx)).
			If(clientv3.Compare(clientv3.Value(peers.AnnouncementKey(node)), "!=", content)).
			Then(clientv3.OpPut(peers.AnnouncementKey(node), content)).
			Else(clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(peers.AnnouncementKey(node)), "=", 0)},
				[]clientv3.Op{clientv3.OpPut(peers.AnnouncementKey(node), content)}, nil)).
			Commit()
		return err
	})
}

// awaitMember waits until the leader has added the member.
func (p *peerService) awaitMember(ctx context.Context, node string, member uint64) error {
	ticker := time.NewTicker(joinInterval)
	defer ticker.Stop()
	for {
		switch {
		case p.store.Removed(member):
			return status.Errorf(codes.FailedPrecondition, "consensus: member %s was removed from the store", peers.FormatMember(member))
		case slices.ContainsFunc(p.store.Peers(), func(peer store.Peer) bool { return peer.ID == member }):
			return nil
		}
		select {
		case <-ticker.C:
		case <-p.store.Server().StopNotify():
			return status.Error(codes.Unavailable, "consensus: the member of this node is stopping")
		case <-ctx.Done():
			return status.Errorf(codes.Unavailable, "consensus: the leader of the store has not added the member of node %s yet%s", node, p.step(node))
		}
	}
}

// step is what the leader tells of a node.
func (p *peerService) step(node string) string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	answer, err := p.store.Client().Get(store.Root(ctx), consensusv1.UserPrefix(p.clusterUser)+consensusv1.StoreStateKey, clientv3.WithSerializable())
	if err != nil || len(answer.Kvs) == 0 {
		return ""
	}
	told, err := desired.ParseState(answer.Kvs[0].Value)
	if err != nil {
		return ""
	}
	for _, member := range told.GetMembers() {
		if member.GetNodeId() == node && member.GetStep() != "" {
			return ": " + member.GetStep()
		}
	}
	return ""
}

// joiner returns how the members are asked for a place; nil: not at all.
func joiner(config Config) func(context.Context, *consensusv1.JoinRequest) (*consensusv1.JoinResponse, error) {
	if config.Network == nil {
		return nil
	}
	return func(ctx context.Context, request *consensusv1.JoinRequest) (*consensusv1.JoinResponse, error) {
		if config.AwaitNodes != nil {
			bounded, cancel := context.WithTimeout(ctx, directoryBound)
			config.AwaitNodes(bounded)
			cancel()
		}
		nodes := config.Network.Nodes()
		if len(nodes) == 0 {
			return nil, fmt.Errorf("%w: the cluster's directory has no node yet whose member of the store could be asked", store.ErrWaiting)
		}
		return askAll(ctx, config.Network, nodes, request)
	}
}

// settleBound is how long the other answers are waited for when one says that the member was removed. Members that are alive answer at once.
const settleBound = time.Second

// askAll asks all members at the same time, since one that cannot be reached may answer nothing at all. The first answer that settles it counts, but that a member was removed counts last. The members of
// another store than the member's have removed it if its node follows that one; then those of its own store count for nothing.
func askAll(ctx context.Context, network Network, nodes []string, request *consensusv1.JoinRequest) (*consensusv1.JoinResponse, error) {
	type reply struct {
		node   string
		answer *consensusv1.JoinResponse
		err    error
	}
	ctx, stop := context.WithCancel(ctx)
	replies := make(chan reply, len(nodes))
	var asking sync.WaitGroup
	defer asking.Wait()
	defer stop()
	for _, node := range nodes {
		asking.Go(func() {
			answer, err := askMember(ctx, network, node, request)
			replies <- reply{node: node, answer: answer, err: err}
		})
	}
	theirs := store.Generation{Number: request.GetGeneration(), ID: request.GetGenerationId()}
	follows, known := network.Follows()
	left := known && request.GetHasData() && follows.Replaces(theirs)
	var said []string
	unwanted := false
	var removed error
	var settled <-chan time.Time
	for range nodes {
		var reply reply
		select {
		case reply = <-replies:
		case <-settled:
			return nil, removed
		}
		message, code := status.Convert(reply.err).Message(), status.Code(reply.err)
		if other, is := otherGeneration(reply.err); is && left && other.Same(follows) {
			code = codes.FailedPrecondition
		}
		switch code {
		case codes.OK:
			if !left {
				return reply.answer, nil
			}
			message = fmt.Sprintf("its member is of generation %s of the store, and this node follows generation %s", theirs, follows)
		case codes.FailedPrecondition:
			// A member that another store has removed may be one of a store that is alive.
			removed = fmt.Errorf("%w: %s", store.ErrRemoved, message)
			if settled == nil {
				settled = time.After(settleBound)
			}
			continue
		case codes.AlreadyExists:
			return nil, fmt.Errorf("%w: %s", store.ErrElsewhere, message)
		case codes.PermissionDenied:
			unwanted = !left // as a quorum has it, unless another one knows better
		}
		said = append(said, fmt.Sprintf("node %s: %s", reply.node, message))
	}
	if removed != nil {
		return nil, removed
	}
	slices.Sort(said)
	reason := store.ErrWaiting
	if unwanted {
		reason = store.ErrUnwanted
	}
	return nil, fmt.Errorf("%w: %s", reason, strings.Join(said, "; "))
}

// otherGeneration returns that of the store that has refused a member of another one.
func otherGeneration(err error) (store.Generation, bool) {
	for _, detail := range status.Convert(err).Details() {
		if other, is := detail.(*consensusv1.OtherGeneration); is && status.Code(err) == codes.Aborted {
			return store.Generation{Number: other.GetGeneration(), ID: other.GetGenerationId()}, true
		}
	}
	return store.Generation{}, false
}

func askMember(ctx context.Context, network Network, node string, request *consensusv1.JoinRequest) (*consensusv1.JoinResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, askBound)
	defer cancel()
	var failed error
	var mu sync.Mutex
	connection, err := grpc.NewClient("passthrough:///"+node,
		grpc.WithTransportCredentials(network.Credentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			conn, err := network.Dial(ctx, node)
			mu.Lock()
			defer mu.Unlock()
			failed = err
			return conn, err
		}))
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	answer, err := consensusv1.NewPeerServiceClient(connection).Join(ctx, request)
	mu.Lock()
	defer mu.Unlock()
	if err != nil && failed != nil && status.Code(err) == codes.Unavailable {
		return nil, failed
	}
	return answer, err
}
