package store

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver/api/etcdhttp"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/reeveproject/reeve/plugins/consensus/internal/desired"
	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
	"github.com/reeveproject/reeve/plugins/consensus/internal/steps"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/sdk/checkpoint"
)

const (
	// peerInterval is how often it is looked whether the members have changed, of which etcd tells nobody.
	peerInterval = 200 * time.Millisecond
	// moveBound is how long it may take until the others know a new address, before it is tried again.
	moveBound = 5 * time.Second
	// statePath is where a member tells the others how it is.
	statePath = "/reeve/state"
	// missingQuery is in the query of who asks for that and misses a member. A former version does not look at it.
	missingQuery = "missing"
)

// peering is where the other members reach this one: nowhere while there are none.
type peering struct {
	store *Store
	// wanted says that somebody is about to join, of which expected tells.
	wanted   atomic.Bool
	expected chan struct{}
	problem  atomic.Pointer[string]
	// outgoing is how the member reaches the others.
	outgoing *peers.Outgoing
	working  sync.WaitGroup
	cancel   context.CancelFunc

	mu       sync.Mutex
	bound    net.Listener // nil: nothing is
	place    Place        // of bound
	alone    bool         // it is on the address in place.Host alone, since another process has the port on another one
	listener *peers.Listener

	// moving and forgetting say that one is at it: neither is to hold anything else up.
	moving, forgetting atomic.Bool
	// absent are the removed members of which it was said that nothing is left; forget's.
	absent map[uint64]bool
	// held is what the member uses for its connections; nil: nothing was read yet. unfollowed is why it cannot follow the CA in the store; look's.
	held       atomic.Pointer[held]
	unfollowed string
	// told is the revision of the CA that the leader was told to be followed; tellFollowed's.
	told int64
	// document is the revision of the document that desired is of; look's.
	document int64
	desired  []string
}

func newPeering(s *Store) *peering {
	p := &peering{store: s, cancel: func() {}, expected: make(chan struct{}, 1), absent: make(map[uint64]bool)}
	p.outgoing = peers.NewOutgoing(peers.OutgoingConfig{
		Log: s.log.Named("peers"), Places: p, Credentials: p.credentials, DialTimeout: s.dialTimeout(), Elsewhere: s.config.Elsewhere, Now: time.Now,
	})
	return p
}

// bind takes the address at which others are to reach the member, as soon as there is one.
func (p *peering) bind(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, moveBound)
	defer cancel()
	place, err := p.store.config.Place.Wait(ctx, func(place Place) bool { return place.Host != "" })
	if err != nil {
		return fmt.Errorf("this node knows no address of its own at which the others could reach it: %w", err)
	}
	return p.take(place)
}

func (p *peering) take(place Place) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bound != nil && p.place == place {
		return nil
	}
	moved := p.place.Host != "" && p.place.Host != place.Host
	if p.bound == nil || p.place.Listen != place.Listen || p.alone && moved {
		p.release()
		bound, alone, err := place.bind()
		if err != nil {
			return err
		}
		p.bound, p.alone = bound, alone
	}
	if moved {
		p.outgoing.Renew()
		if p.listener != nil {
			p.listener.Renew()
		}
	}
	p.place = place
	return nil
}

// release gives the address back. The lock is held.
func (p *peering) release() {
	if p.listener != nil {
		p.listener.Close()
	} else if p.bound != nil {
		p.bound.Close()
	}
	p.bound, p.listener = nil, nil
}

// address is where the others reach the member: host:port; empty: nowhere.
func (p *peering) address() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bound == nil {
		return ""
	}
	address, err := p.place.at(p.bound.Addr())
	if err != nil {
		return ""
	}
	return address
}

// start begins to serve, as far as there is anybody. etcd runs.
func (p *peering) start() error {
	if p.store.config.Place == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	p.look(ctx)
	p.working.Go(func() { p.run(ctx) })
	return nil
}

// stop ends everything. It may be called more than once.
func (p *peering) stop() {
	if p == nil {
		return
	}
	p.cancel()
	p.working.Wait()
	p.outgoing.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.release()
}

func (p *peering) run(ctx context.Context) {
	places := p.store.config.Place.Watch()
	ticker := time.NewTicker(peerInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-places.Changed():
			_, _ = places.Next(ctx) // look reads the present one
		case <-p.expected:
		case <-ticker.C:
		}
		if p.store.closing() {
			continue
		}
		p.look(ctx)
		if p.forgetting.CompareAndSwap(false, true) {
			p.working.Go(func() {
				defer p.forgetting.Store(false)
				p.forget(ctx)
				p.tellFollowed(ctx)
			})
		}
	}
}

// look follows the CA, listens where it should, closes the connections of those who are no members any more, and has the others know the member's address.
func (p *peering) look(ctx context.Context) {
	if err := p.follow(); err == nil {
		p.unfollowed = ""
	} else if text := err.Error(); text != p.unfollowed {
		p.unfollowed = text
		p.store.log.Warn("this member cannot follow the CA by which the members of the store know each other; trying again", "error", err)
	}
	p.outgoing.Sweep() // first: whatever becomes of the listener, nobody speaks to a former member
	server := p.store.etcd.Server
	own := server.Cluster().Member(server.MemberID())
	alone := len(server.Cluster().Members()) == 1 && own != nil
	place, known := p.store.config.Place.Get()
	if !alone {
		p.wanted.Store(false) // who was expected has come
	}
	switch {
	case alone && !p.company() && !p.wanted.Load():
		p.mu.Lock()
		p.release()
		p.mu.Unlock()
		p.say("")
	case !known || place.Host == "":
		p.say("this node knows no address of its own at which the other members of the store could reach this one")
	default:
		if err := p.serve(place); err != nil {
			p.say(fmt.Sprintf("the other members of the store cannot reach this one: %v; free the address, or set another one with peerListen in the configuration of this role", err))
			return
		}
		p.say("")
	}
	p.mu.Lock()
	listener := p.listener
	p.mu.Unlock()
	if listener == nil {
		return
	}
	listener.Sweep()
	if url := peers.URL(p.address()); own != nil && !slices.Equal(own.PeerURLs, []string{url}) && p.moving.CompareAndSwap(false, true) {
		p.working.Go(func() {
			defer p.moving.Store(false)
			p.move(ctx, url)
		})
	}
}

func (p *peering) say(problem string) { p.problem.Store(&problem) }

// Problem is what keeps the others from reaching the member; empty: nothing.
func (p *peering) said() string {
	if problem := p.problem.Load(); problem != nil {
		return *problem
	}
	return ""
}

// company reports whether another node is to have a member, by what the local one has stored.
func (p *peering) company() bool {
	answer, err := p.store.etcd.Server.KV().Range(context.Background(), []byte(desired.Key(p.store.plan.ClusterUser)), nil, mvcc.RangeOptions{})
	if err != nil || len(answer.KVs) == 0 {
		return false
	}
	if found := answer.KVs[0]; found.ModRevision != p.document {
		p.document = found.ModRevision
		if parsed, err := desired.Parse(found.Value); err == nil {
			p.desired = parsed.GetMembers()
		}
	}
	return slices.ContainsFunc(p.desired, func(node string) bool { return node != p.store.plan.NodeID })
}

// serve listens at a place.
func (p *peering) serve(place Place) error {
	if err := p.take(place); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		return nil
	}
	server := p.store.etcd.Server
	mux := http.NewServeMux()
	mux.Handle("/", reachable(etcdhttp.NewPeerHandler(server.Logger(), server)))
	mux.HandleFunc("GET "+statePath, p.state)
	mux.HandleFunc(hashPattern, p.store.serveHash)
	p.listener = peers.Serve(p.store.log.Named("peers"), p.bound, p.credentials, p, mux)
	p.store.log.Info("listening for the other members of the store", "address", p.bound.Addr().String())
	return nil
}

// reachable keeps from etcd the address of one that was started before it listened for the others: etcd would remember it, and no other one.
func reachable(handler http.Handler) http.Handler {
	const header = "X-PeerURLs"
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for urls := range strings.SplitSeq(r.Header.Get(header), ",") {
			if !strings.HasPrefix(urls, "https://") {
				r.Header.Del(header)
				break
			}
		}
		handler.ServeHTTP(w, r)
	})
}

// state tells another member how this one is.
func (p *peering) state(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Has(missingQuery) {
		p.store.reach.hasten(time.Now())
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(p.store.state())
}

// Admit implements peers.Gate. A member of which the local one has never heard is let in only while that knows no better: it may have been away when the other came, and
// all who could tell it may be gone. One that has taken nothing over yet goes by what it was told when it was given its place.
func (p *peering) Admit(name peers.Name) error {
	members, told := p.members()
	if p.store.Removed(name.Member) {
		return fmt.Errorf("member %s of node %s was removed from the store", peers.FormatMember(name.Member), name.Node)
	}
	n := slices.IndexFunc(members, func(peer Peer) bool { return peer.ID == name.Member })
	switch {
	case n < 0 && (told || p.knows() || p.strange(name.Member)):
		return fmt.Errorf("the store has no member %s of node %s", peers.FormatMember(name.Member), name.Node)
	case n >= 0 && members[n].Node != "" && members[n].Node != name.Node:
		return fmt.Errorf("member %s is of node %s, not of node %s", peers.FormatMember(name.Member), members[n].Node, name.Node)
	}
	return nil
}

// strange reports whether the local member is still joining, and was not told of this member when it was given its place. While it takes over the log, the members that the
// log has named so far are not all of them.
func (p *peering) strange(member uint64) bool {
	others := p.store.others.get()
	return !p.store.finished.Load() && len(others) > 0 &&
		!slices.ContainsFunc(others, func(other *consensusv1.StorePeer) bool { return other.GetMemberId() == peers.FormatMember(member) })
}

// members are those of the store, as far as the local one knows them: until it has taken any of the store over, those that it was told of.
func (p *peering) members() (members []Peer, told bool) {
	if members = p.store.Peers(); len(members) > 0 {
		return members, false
	}
	for _, other := range p.store.others.get() {
		if id, err := peers.ParseMember(other.GetMemberId()); err == nil {
			members = append(members, Peer{ID: id, Node: other.GetNodeId(), URLs: other.GetPeerUrls()})
		}
	}
	return members, true
}

// At implements peers.Places.
func (p *peering) At(address string) []uint64 {
	var at []uint64
	members, _ := p.members()
	for _, member := range members {
		if slices.Contains(member.URLs, peers.URL(address)) {
			at = append(at, member.ID)
		}
	}
	return at
}

// knows reports whether the local member knows all members: it has read as a quorum has it, under the leader that there is.
func (p *peering) knows() bool {
	status, ok := p.store.status.Get()
	return ok && status.Quorum() && status.LeaderID != "" && status.LeaderID == memberName(p.store.etcd.Server.Leader())
}

// move has the others know where the member is reached.
func (p *peering) move(ctx context.Context, url string) {
	ctx, cancel := context.WithTimeout(ctx, moveBound)
	defer cancel()
	server := p.store.etcd.Server
	err := checkpoint.Around(steps.MoveMember, func() error {
		_, err := server.UpdateMember(Root(ctx), membership.Member{ID: server.MemberID(), RaftAttributes: membership.RaftAttributes{PeerURLs: []string{url}}})
		return err
	})
	if err != nil && ctx.Err() == nil {
		p.store.log.Warn("cannot tell the other members of the store where this one is reached; trying again", "url", url, "error", err)
	}
}

// forget tells the leader of each removed member that nothing of it is left here: its connections are closed, and none is accepted any more.
func (p *peering) forget(ctx context.Context) {
	server := p.store.etcd.Server
	end := clientv3.GetPrefixRangeEnd(peers.RemovedPrefix)
	answer, err := server.KV().Range(ctx, []byte(peers.RemovedPrefix), []byte(end), mvcc.RangeOptions{})
	if err != nil {
		return
	}
	if len(answer.KVs) == 0 {
		clear(p.absent)
		return
	}
	for _, found := range answer.KVs {
		removal := string(found.Key)
		id, err := peers.ParseMember(removal[len(peers.RemovedPrefix):])
		if err != nil || p.absent[id] || !server.IsIDRemoved(id) || p.connected(id) {
			continue
		}
		bounded, cancel := context.WithTimeout(Root(ctx), moveBound)
		err = checkpoint.Around(steps.NoteAbsence, func() error {
			_, err := p.store.client.Txn(bounded).
				If(clientv3.Compare(clientv3.CreateRevision(removal), "!=", 0)).
				Then(clientv3.OpPut(peers.AbsentKey(id, uint64(server.MemberID())), "")).Commit()
			return err
		})
		cancel()
		if err == nil {
			p.absent[id] = true
		}
	}
}

func (p *peering) connected(member uint64) bool {
	if p.outgoing.Connected(member) {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.listener != nil && p.listener.Connected(member)
}
