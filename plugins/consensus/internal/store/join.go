package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/version"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/etcdserver/api/rafthttp"
	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

var (
	// ErrRemoved says that the store has removed the member for good.
	ErrRemoved = errors.New("the member was removed from the store")
	// ErrElsewhere says that the store has another member of the node than the one that wants to join.
	ErrElsewhere = errors.New("the store has another member of this node, whose data is not here")
	// ErrUnwanted says that the node of the member that asks is to have none. It is an ErrWaiting, too: that may change.
	ErrUnwanted = fmt.Errorf("%w: this node is to have none", ErrWaiting)
	// ErrWaiting says that a member cannot join yet. The same call may succeed later.
	ErrWaiting = errors.New("the member cannot join the store yet")

	// errAgain says that the member is to be started once more: what listens, or asks, has read the former certificates.
	errAgain = errors.New("the peers' CA is another one than at the start")
)

// begin says how etcd is to be started, and sees to what it needs for that. The CA of the peers is returned if it was made and nobody else has it.
func (s *Store) begin(ctx context.Context) (beginning, *peers.Authority, error) {
	how := beginning{peers: s.files().Info()}
	switch s.marker.Phase {
	case joining:
		plan, err := s.ask(ctx)
		if err == nil && plan != nil {
			err = guard(func() error { return s.lay(ctx, s.others.get()) })
		}
		how.join = plan
		return how, nil, err
	case forming:
		if how.make = true; s.plan.Restored {
			if err := s.layRestored(); err != nil {
				return how, nil, err
			}
		}
		urls := types.MustNewURLs([]string{"unix://" + s.plan.NodeID})
		authority, err := s.prove(uint64(membership.NewMember(s.plan.NodeID, urls, s.plan.ClusterID, nil).ID))
		return how, authority, err
	}
	member, err := peers.ParseMember(s.marker.MemberID)
	if err != nil {
		return how, nil, foreign("the marker %s: %v; %s", markerPath(s.directory), err, wayOutOfForeign)
	}
	authority, err := s.prove(member)
	return how, authority, err
}

func (s *Store) files() peers.Files { return peers.Files{Directory: peerDirectory(s.directory)} }

func (s *Store) name(member uint64) peers.Name {
	return peers.Name{Cluster: s.plan.ClusterID, Node: s.plan.NodeID, Member: member}
}

// ask asks for a place in the store, also for a member that has begun to take it over: its own data need not say yet who the others are. Without a plan, and an error, the
// member goes by that all the same.
func (s *Store) ask(ctx context.Context) (*joinPlan, error) {
	if s.config.Join == nil || s.config.Place == nil {
		return nil, fmt.Errorf("%w: this role has no way to reach the others", ErrWaiting)
	}
	if err := s.peering.bind(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrWaiting, err)
	}
	if !wal.Exist(datadir.ToWALDir(etcdDirectory(s.directory))) { // a log comes into being as a whole; without one there is nothing of any use
		if err := os.RemoveAll(etcdDirectory(s.directory)); err != nil {
			return nil, err
		}
	}
	request, err := s.request()
	if err != nil {
		return nil, err
	}
	answer, err := s.config.Join(ctx, request)
	switch {
	case errors.Is(err, ErrWaiting) && ctx.Err() == nil && s.canStart():
		s.log.Warn("nobody gives this member its place in the store; it starts from what it has taken over", "reason", err)
		return nil, nil
	case errors.Is(err, ErrElsewhere):
		return nil, missing("%v; put the role's data directory %s back from a backup of this node, or take the role from the node and assign it again: that removes the lost member", err, s.directory)
	case err != nil:
		return nil, err
	}
	return s.accept(answer)
}

// canStart reports whether a member that has not finished its join can start without an answer. It may vote already, and the others may have no quorum, without which
// they do not answer, before it does.
func (s *Store) canStart() bool {
	member, err := peers.ParseMember(s.marker.MemberID)
	if err != nil || !wal.Exist(datadir.ToWALDir(etcdDirectory(s.directory))) {
		return false
	}
	credentials, err := s.files().Load()
	return err == nil && credentials.Name == s.name(member)
}

func (s *Store) request() (*consensusv1.JoinRequest, error) {
	csr, err := s.files().Request()
	if err != nil {
		return nil, err
	}
	// What a member has before it has read any data is of the store that it has begun to join.
	generation, has := s.marker.generation(), wal.Exist(datadir.ToWALDir(etcdDirectory(s.directory)))
	if known := s.generation.Load(); known != nil {
		generation = *known
	}
	follows := false
	if !has && s.config.Follows != nil {
		if wanted, known := s.config.Follows(); known {
			generation, follows = wanted, true
		}
	}
	return &consensusv1.JoinRequest{
		PeerAddress: s.peering.address(), CertificateRequest: csr, Attempt: s.marker.MemberID,
		Generation: generation.Number, GenerationId: generation.ID, HasData: has, Follows: follows,
	}, nil
}

// accept keeps the certificate that came with an answer, and makes of its members what etcd is told.
func (s *Store) accept(answer *consensusv1.JoinResponse) (*joinPlan, error) {
	member, err := peers.ParseMember(s.marker.MemberID)
	if err != nil {
		return nil, err
	}
	if len(answer.GetCertificate()) != 1 || len(answer.GetCaCertificates()) == 0 {
		return nil, fmt.Errorf("%w: the answer of the store has not one certificate, or none of the CA", ErrWaiting)
	}
	if err := s.files().Install(answer.Certificate[0], answer.CaCertificates, s.name(member)); err != nil {
		return nil, err
	}
	plan := &joinPlan{}
	var cluster []string
	for _, peer := range answer.GetMembers() {
		if strings.ContainsAny(peer.GetNodeId(), "=,") || peer.GetNodeId() == "" || len(peer.GetPeerUrls()) == 0 {
			return nil, fmt.Errorf("%w: the answer of the store has a member without a node or an address", ErrWaiting)
		}
		for _, address := range peer.PeerUrls {
			if strings.ContainsAny(address, "=,") {
				return nil, fmt.Errorf("%w: the answer of the store has a member with the address %q", ErrWaiting, address)
			}
			cluster = append(cluster, peer.NodeId+"="+address)
		}
		if peer.MemberId == s.marker.MemberID {
			plan.url = peer.PeerUrls[0]
		}
	}
	if plan.url == "" {
		return nil, fmt.Errorf("%w: the answer of the store does not have this member", ErrWaiting)
	}
	if err := s.joined(Generation{Number: answer.GetGeneration(), ID: answer.GetGenerationId()}); err != nil {
		return nil, err
	}
	s.others.set(answer.GetMembers())
	slices.Sort(cluster)
	plan.cluster = strings.Join(cluster, ",")
	return plan, nil
}

// pauseToAsk waits until it is time to ask the others whether the member is one of them; false: ctx is done.
func (s *Store) pauseToAsk(ctx context.Context) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(askInterval):
		}
		if s.config.Join != nil && s.cutOff() && s.peering.address() != "" {
			return true
		}
	}
}

// cutOff reports whether the member may have missed what the others have decided, or is one of a store that the node has left. A learner, which elects nobody, keeps taking the last leader that it has heard of for
// the leader; so it is one that does not serve yet, or whose reads nobody answers.
func (s *Store) cutOff() bool {
	if s.etcd.Server.Leader() == 0 || s.behind() {
		return true
	}
	status, serves := s.status.Get()
	return serves && !status.Quorum() || !serves && s.Learner()
}

// isRemoved asks the others whether the member was removed. That nobody answers says nothing.
func (s *Store) isRemoved(ctx context.Context) bool {
	_, removed := s.askPlace(ctx)
	return removed
}

// askPlace asks the others whether the member is one of them. answered: somebody knows.
func (s *Store) askPlace(ctx context.Context) (answered, removed bool) {
	answer, err := s.askOthers(ctx, s.etcd.Server.MemberID().String())
	if err == nil {
		s.others.set(answer.GetMembers())
		s.introduce(answer.GetMembers())
	}
	removed = errors.Is(err, ErrRemoved)
	return err == nil || removed, removed
}

// asksRemoved is isRemoved for a member that does not run.
func (s *Store) asksRemoved(ctx context.Context) bool {
	if s.config.Join == nil || s.config.Place == nil {
		return false
	}
	if err := s.peering.bind(ctx); err != nil {
		s.log.Warn("cannot ask the others whether this member is one of them", "error", err)
		return false
	}
	_, err := s.askOthers(ctx, s.marker.MemberID)
	return errors.Is(err, ErrRemoved)
}

func (s *Store) askOthers(ctx context.Context, member string) (*consensusv1.JoinResponse, error) {
	request, err := s.request()
	if err != nil {
		s.log.Warn("cannot ask the others whether this member is one of them", "error", err)
		return nil, err
	}
	request.Attempt = member
	ctx, cancel := context.WithTimeout(ctx, askInterval)
	defer cancel()
	return s.config.Join(ctx, request)
}

// acquaintances are the members of the store, as the others have last told. They are never changed.
type acquaintances struct {
	mu      sync.Mutex
	members []*consensusv1.StorePeer
}

func (a *acquaintances) get() []*consensusv1.StorePeer {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.members
}

func (a *acquaintances) set(members []*consensusv1.StorePeer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.members = members
}

// introduce has etcd know where the other members are, of whom its own data may not say anything: it was away when they came, or has taken nothing over yet. Only by
// a request of theirs etcd learns of them then, and by their addresses only as they were when those were started; so this is made in their place.
func (s *Store) introduce(members []*consensusv1.StorePeer) {
	handler := s.etcd.Server.RaftHandler()
	for _, member := range members {
		if member.GetMemberId() == s.marker.MemberID || len(member.GetPeerUrls()) == 0 {
			continue
		}
		if _, err := types.NewURLs(member.PeerUrls); err != nil {
			continue
		}
		path := rafthttp.RaftStreamPrefix + "/message/" + member.MemberId
		request := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: path}, Header: http.Header{}}
		request.Header.Set("X-Server-From", member.MemberId)
		request.Header.Set("X-Server-Version", version.Version)
		request.Header.Set("X-Min-Cluster-Version", version.MinClusterVersion)
		request.Header.Set("X-Etcd-Cluster-Id", s.etcd.Server.Cluster().ID().String())
		request.Header.Set("X-Raft-To", "none") // so that it is not taken for a stream of one that is known
		request.Header.Set("X-Peerurls", strings.Join(member.PeerUrls, ","))
		handler.ServeHTTP(unheard{}, request)
	}
}

// unheard is where the answer to a request goes that nobody waits for.
type unheard struct{}

// Header implements http.ResponseWriter.
func (unheard) Header() http.Header { return http.Header{} }

// Write implements http.ResponseWriter.
func (unheard) Write(content []byte) (int, error) { return len(content), nil }

// WriteHeader implements http.ResponseWriter.
func (unheard) WriteHeader(int) {}

// Place is where a member listens for the others.
type Place struct {
	// Listen is the address (host:port) that it takes; port 0: any. Host is by what others reach it.
	Listen, Host string
}

// bind listens there. Where another process has the port on one of the machine's addresses, as another node of it may, it is the member's own address alone.
func (p Place) bind() (bound net.Listener, alone bool, err error) {
	bound, err = peers.Bind(p.Listen)
	if !errors.Is(err, unix.EADDRINUSE) {
		return bound, false, err
	}
	host, port, _ := net.SplitHostPort(p.Listen) // it was bound
	if ip := net.ParseIP(host); host != "" && (ip == nil || !ip.IsUnspecified()) {
		return nil, false, err
	}
	bound, err = peers.Bind(net.JoinHostPort(p.Host, port))
	return bound, true, err
}

// at is the address under which others reach what was bound.
func (p Place) at(bound net.Addr) (string, error) {
	_, port, err := net.SplitHostPort(bound.String())
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(p.Host, port), nil
}
