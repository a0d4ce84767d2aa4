package roletest

import (
	"io"
	"net"
	"path/filepath"
	"sync"

	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// OpenStore gives the role its part of a consensus store that is served on a Unix socket. The role reaches it through a socket of the host, so that
// LoseStore, RevokeStore and Split can take it away like a node. Package consensustest (sdk/consensus/consensustest) has a real store.
func (h *Host) OpenStore(socket, consensusUser string) {
	h.changeStore(func(s *storeGate) {
		s.shut() // another store may be open
		s.behind, s.user, s.lost, s.revoked = socket, consensusUser, false, false
	})
}

// NoStore makes the node run no consensus store.
func (h *Host) NoStore() {
	h.changeStore(func(s *storeGate) { s.behind = "" })
	h.Consensus.Set(unavailable(hostv1.ConsensusUnavailableReason_CONSENSUS_UNAVAILABLE_REASON_NO_LOCAL_CONSENSUS, ""))
}

// LoseStore takes away the store of OpenStore, like the death of the node's member: connections are cut, and the role waits for the store.
func (h *Host) LoseStore() {
	h.changeStore(func(s *storeGate) { s.lost = true })
}

// FindStore ends LoseStore.
func (h *Host) FindStore() {
	h.changeStore(func(s *storeGate) { s.lost = false })
}

// RevokeStore takes away the store of OpenStore, like a cluster's owner who withdraws the grant: connections are cut, and the role gets ErrNotGranted
// when it dials again. OpenStore grants it again.
func (h *Host) RevokeStore() {
	h.changeStore(func(s *storeGate) { s.revoked = true })
}

// KeepStore says that a role of this host keeps the store while the node is Split. Process.Start calls it for a role whose manifest says so; call it
// for a role that Launch did not start.
func (h *Host) KeepStore() {
	h.changeStore(func(s *storeGate) { s.kept = true })
}

// changeStore changes the availability of the store, and updates the gate and the roles.
func (h *Host) changeStore(change func(*storeGate)) {
	s := &h.store
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
	var tell *hostv1.OpenConsensusResponse
	switch {
	case s.behind == "":
		s.shut()
		return
	case s.revoked:
		tell = unavailable(hostv1.ConsensusUnavailableReason_CONSENSUS_UNAVAILABLE_REASON_NOT_GRANTED, "the grant was withdrawn by the test")
	case s.split && !s.kept:
		tell = unavailable(hostv1.ConsensusUnavailableReason_CONSENSUS_UNAVAILABLE_REASON_NOT_MEMBER, "the node is Split, and the role does not continue in Split")
	case s.lost:
		tell = unavailable(hostv1.ConsensusUnavailableReason_CONSENSUS_UNAVAILABLE_REASON_WAITING, "the consensus store, which the test took away")
	default:
		socket := filepath.Join(h.directory, "store.sock")
		if err := s.serve(socket); err != nil {
			h.t.Errorf("cannot serve the store's socket: %s", err)
		}
		h.Consensus.Set(&hostv1.OpenConsensusResponse{State: &hostv1.OpenConsensusResponse_Open{Open: &hostv1.ConsensusOpen{
			Socket: socket, ConsensusUser: s.user, Prefix: consensusv1.UserPrefix(s.user),
		}}})
		return
	}
	s.shut()
	h.Consensus.Set(tell)
}

func unavailable(reason hostv1.ConsensusUnavailableReason, message string) *hostv1.OpenConsensusResponse {
	return &hostv1.OpenConsensusResponse{State: &hostv1.OpenConsensusResponse_Unavailable{
		Unavailable: &hostv1.ConsensusUnavailable{Reason: reason, Message: message},
	}}
}

// storeGate is between the roles of a host and the store. It forwards connections, and cuts all of them when it shuts.
type storeGate struct {
	mu           sync.Mutex
	behind, user string // the store's socket and the role's ConsensusUser; empty if there is none
	// lost, revoked and split make the store unavailable; kept overrides split.
	lost, revoked, split, kept bool

	listener net.Listener // nil while the gate is shut
	ends     *ends
	passing  sync.WaitGroup
}

// serve opens the gate if it is shut. The caller holds mu.
func (s *storeGate) serve(socket string) error {
	if s.listener != nil {
		return nil
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	behind, ends := s.behind, &ends{open: make(map[net.Conn]struct{})}
	s.listener, s.ends = listener, ends
	s.passing.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // it was closed
			}
			if ends.enter(conn) {
				s.passing.Go(func() { ends.pass(conn, behind) })
			}
		}
	})
	return nil
}

// shut closes the gate if it is open. The caller holds mu.
func (s *storeGate) shut() {
	if s.listener == nil {
		return
	}
	_ = s.listener.Close() // also removes the socket
	s.ends.cut()
	s.passing.Wait()
	s.listener = nil
}

// ends are both ends of every connection through a gate.
type ends struct {
	mu   sync.Mutex
	shut bool
	open map[net.Conn]struct{}
}

// pass forwards data between a role and the store, until one of them or the gate ends it.
func (e *ends) pass(role net.Conn, behind string) {
	defer e.leave(role)
	store, err := net.Dial("unix", behind)
	if err != nil || !e.enter(store) {
		return // the role sees that the store is away
	}
	defer e.leave(store)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(role, store)
		_ = role.Close()
	}()
	_, _ = io.Copy(store, role)
	_ = store.Close()
	<-ended
}

// enter adds a connection. If the gate is shut, it closes the connection and returns false.
func (e *ends) enter(conn net.Conn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.shut {
		_ = conn.Close()
		return false
	}
	e.open[conn] = struct{}{}
	return true
}

func (e *ends) leave(conn net.Conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.open, conn)
	_ = conn.Close() // it may be closed already
}

func (e *ends) cut() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.shut = true
	for conn := range e.open {
		_ = conn.Close()
	}
}
