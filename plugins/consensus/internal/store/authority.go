package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
	"github.com/reeveproject/reeve/plugins/consensus/internal/steps"
	"github.com/reeveproject/reeve/sdk/checkpoint"
)

// prove has the member's certificate for the others be there. Where there is none that is of any use, one of a new CA is made: adoptAuthority or shareAuthority see to
// that it is, or becomes, the store's.
func (s *Store) prove(member uint64) (*peers.Authority, error) {
	switch credentials, err := s.files().Load(); {
	case err == nil && credentials.Name == s.name(member):
		return nil, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		s.log.Error("the member's credentials for the others cannot be used; they are made anew", "directory", peerDirectory(s.directory), "error", err)
		if err := os.RemoveAll(peerDirectory(s.directory)); err != nil {
			return nil, err
		}
	}
	authority, err := peers.NewAuthority(s.plan.ClusterID)
	if err != nil {
		return nil, err
	}
	return authority, s.install(authority, member)
}

func (s *Store) install(authority *peers.Authority, member uint64) error {
	key, err := s.files().Key()
	if err != nil {
		return err
	}
	certificate, err := authority.Issue(key.Public(), s.name(member))
	if err != nil {
		return err
	}
	return s.files().Install(certificate, authority.Certificates(), s.name(member))
}

// Authority is the CA of the store's peers, as the local member has it; nil: it has none yet.
func (s *Store) Authority() (*peers.Authority, error) {
	stored, _, err := s.stored(peers.AuthorityKey)
	if err != nil || stored == nil {
		return nil, err
	}
	return parseAuthority(stored)
}

func parseAuthority(stored []byte) (*peers.Authority, error) {
	authority, err := peers.ParseAuthority(stored)
	if err != nil {
		return nil, fmt.Errorf("read the CA of the store's peers at %s: %w", peers.AuthorityKey, err)
	}
	return authority, nil
}

// stored is a key's value, and the revision that wrote it, as the local member has it.
func (s *Store) stored(key string) (value []byte, revision int64, err error) {
	answer, err := s.etcd.Server.KV().Range(context.Background(), []byte(key), nil, mvcc.RangeOptions{})
	if err != nil || len(answer.KVs) == 0 {
		return nil, 0, err
	}
	return answer.KVs[0].Value, answer.KVs[0].ModRevision, nil
}

// adoptAuthority holds the member's certificate against the CA that it has stored, before it speaks to anybody: files that were lost are made anew.
func (s *Store) adoptAuthority() error {
	authority, err := s.Authority()
	if err != nil || authority == nil {
		return err
	}
	credentials, err := s.files().Load()
	if err != nil {
		return err
	}
	if credentials.Follows(authority) || credentials.Ahead(authority) {
		return nil
	}
	if err := s.install(authority, uint64(s.etcd.Server.MemberID())); err != nil {
		return err
	}
	return errAgain
}

// shareAuthority stores the peers' CA, if the store has none.
func (s *Store) shareAuthority(ctx context.Context, made *peers.Authority) error {
	if stored, err := s.Authority(); err != nil || stored != nil || s.Learner() {
		return err
	}
	authority := made
	if authority == nil { // a crash came between the certificate and this
		var err error
		if authority, err = peers.NewAuthority(s.plan.ClusterID); err != nil {
			return err
		}
	}
	content, err := authority.Marshal()
	if err != nil {
		return err
	}
	err = checkpoint.Around(steps.ShareAuthority, func() error {
		_, err := s.client.Txn(Root(ctx)).
			If(clientv3.Compare(clientv3.CreateRevision(peers.AuthorityKey), "=", 0)).
			Then(clientv3.OpPut(peers.AuthorityKey, string(content))).Commit()
		return err
	})
	if err != nil {
		return fmt.Errorf("store the CA of the store's peers: %w", err)
	}
	return s.adoptAuthority()
}

// held is what the member uses for its connections with the others.
type held struct {
	credentials *peers.Credentials
	// authority is the CA that they follow, and revision is when it was written to the store. Nil and 0: it was not compared with the store yet.
	authority *peers.Authority
	revision  int64
}

// credentials are those that the member uses for its connections with the others.
func (p *peering) credentials() (*peers.Credentials, error) {
	if held := p.held.Load(); held != nil {
		return held.credentials, nil
	}
	credentials, err := p.store.files().Load()
	if err != nil {
		return nil, err
	}
	p.held.CompareAndSwap(nil, &held{credentials: credentials})
	return p.held.Load().credentials, nil
}

// follow has the member use the CA that is in the store for its connections with the others. It never goes back to a former one: after a crash a member may start with less of the store's data than it
// had, and the others do not trust any more what it trusted then.
func (p *peering) follow() error {
	credentials, err := p.credentials()
	if err != nil {
		return err
	}
	stored, revision, err := p.store.stored(peers.AuthorityKey)
	if err != nil || stored == nil || revision == p.held.Load().revision {
		return err
	}
	authority, err := parseAuthority(stored)
	if err != nil || credentials.Ahead(authority) {
		return err
	}
	if !credentials.Follows(authority) {
		if turn, err := p.mayForget(authority); err != nil || !turn {
			return err
		}
		if err := p.store.install(authority, uint64(p.store.etcd.Server.MemberID())); err != nil {
			return err
		}
		if credentials, err = p.store.files().Load(); err != nil {
			return err
		}
		p.store.log.Info("the CA by which the members of the store know each other is being replaced: this member follows")
	}
	p.held.Store(&held{credentials: credentials, authority: authority, revision: revision})
	return nil
}

// mayForget reports whether it is this member's turn to forget a CA. Its connections by that CA end then, and a leader that loses all of its connections at once can commit nothing until they
// are back. So the members take turns, and the leader comes last: the others have connected to it anew by then. A member that is not connected has no connections to lose, and is not waited for.
func (p *peering) mayForget(authority *peers.Authority) (bool, error) {
	if authority.Phase() != peers.Steady {
		return true, nil // nothing is forgotten
	}
	own, leader := uint64(p.store.etcd.Server.MemberID()), uint64(p.store.etcd.Server.Leader())
	for _, other := range p.store.Peers() {
		if other.Learner || !forgetsBefore(other.ID, own, leader) || !p.connected(other.ID) {
			continue
		}
		if told, _, err := p.store.stored(peers.FollowedKey(other.ID)); err != nil || string(told) != authority.Mark() {
			return false, err
		}
	}
	return true, nil
}

// forgetsBefore reports whether one member's turn comes before that of another one.
func forgetsBefore(one, other, leader uint64) bool {
	switch leader {
	case one:
		return false
	case other:
		return true
	}
	return one < other
}

// tellFollowed tells the leader which CA the member follows. The leader takes no step of a replacement before all members have said so: a member whose version cannot replace the CA never does.
func (p *peering) tellFollowed(ctx context.Context) {
	held := p.held.Load()
	if held == nil || held.revision == p.told || p.store.closing() {
		return
	}
	key, mark := peers.FollowedKey(uint64(p.store.etcd.Server.MemberID())), held.authority.Mark()
	before, _, err := p.store.stored(key)
	if err != nil {
		return
	}
	if string(before) != mark {
		bounded, cancel := context.WithTimeout(Root(ctx), moveBound)
		defer cancel()
		err = checkpoint.Around(steps.FollowAuthority, func() error {
			answer, err := p.store.client.Txn(bounded).
				If(clientv3.Compare(clientv3.ModRevision(peers.AuthorityKey), "=", held.revision)).
				Then(clientv3.OpPut(key, mark)).Commit()
			if err == nil && !answer.Succeeded {
				err = errAgain // there is another one by now
			}
			return err
		})
	}
	if err == nil {
		p.told = held.revision
	}
}
