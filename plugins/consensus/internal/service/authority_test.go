package service_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
	"github.com/reeveproject/reeve/plugins/consensus/internal/service"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// authorityOn reads the CA of the peers from the disk of a node whose role is stopped, as whoever has taken it does: the last one that it was ever told.
func authorityOn(t *testing.T, c *cluster, id string) *peers.Authority {
	t.Helper()
	disk := backend.NewDefaultBackend(zap.NewNop(), filepath.Join(c.root, id, "data", "etcd", "member", "snap", "db"))
	defer disk.Close()
	tx := disk.ReadTx()
	tx.RLock()
	defer tx.RUnlock()
	var found *peers.Authority
	err := tx.UnsafeForEach(schema.Key, func(_, record []byte) error {
		var kv mvccpb.KeyValue
		if err := proto.Unmarshal(record, &kv); err != nil || string(kv.Key) != peers.AuthorityKey {
			return nil
		}
		read, err := peers.ParseAuthority(kv.Value)
		found = read
		return err
	})
	if err != nil || found == nil {
		t.Fatalf("the CA on the disk of %s: %v", id, err)
	}
	return found
}

// forged are credentials in the name of a living member that the CA of a stolen disk has made. They believe whoever the member believes.
func forged(t *testing.T, stolen *peers.Authority, member *consensusv1.StoreStateMember) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	id, err := peers.ParseMember(member.MemberId)
	if err != nil {
		t.Fatal(err)
	}
	der, err := stolen.Issue(key.Public(), peers.Name{Cluster: "cluster-a", Node: member.NodeId, Member: id})
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS13,
		InsecureSkipVerify: true, // whom a thief believes is his affair
	}
}

// authorities are the CAs that a member trusts, as its files say.
func authorities(t *testing.T, c *cluster, id string) (all []*x509.Certificate) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(c.root, id, "data", "peer", "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, certificate)
	}
	return all
}

// replaced reports whether members trust one CA, which is the same, and another one than before.
func (c *cluster) replaced(before []byte, ids ...string) bool {
	var one []byte
	for _, id := range ids {
		trusted := authorities(c.t, c, id)
		if len(trusted) != 1 || one != nil && !bytes.Equal(one, trusted[0].Raw) {
			return false
		}
		one = trusted[0].Raw
	}
	return !bytes.Equal(one, before)
}

// calmlyGrown is grown, of members that elect a leader by themselves only after calmElection: on a busy machine a test would be about elections otherwise. Members that are started again are to be calm, too.
func calmlyGrown(t *testing.T, change func(id string) func(*service.Config), ids ...string) (*cluster, *clientv3.Client) {
	t.Helper()
	c := newCluster(t)
	for n, id := range ids {
		joins := c.start(id, calm(calmElection), change(id))
		if n > 0 {
			joins.join()
			continue
		}
		if err := joins.form("new"); err != nil {
			t.Fatal(err)
		}
		c.want(joins.client(), ids...)
	}
	client := c.nodes[ids[0]].client()
	c.await(client, "all vote", settled(ids...))
	return c, client
}

const calmElection = 5 * time.Second

// calm has a store elect a leader by itself only after so long, in which no busy machine stands still: what comes about before is the test's doing.
func calm(election time.Duration) func(*service.Config) {
	return func(config *service.Config) { config.Heartbeat, config.Election = 100*time.Millisecond, election }
}

func unchanged(string) func(*service.Config) { return func(*service.Config) {} }

// again starts a node's role again.
func (c *cluster) again(id string) {
	c.t.Helper()
	if err := c.start(id, calm(calmElection)).form("existing"); err != nil {
		c.t.Fatal(err)
	}
}

// TestAFormerMembersDiskNamesNobody takes the disk of a member, and makes by it a certificate that names another one. While the first is a member this is believed; once it has left, nobody
// lets its holder in, nobody tells anything to who answers by it, and what was connected by it is closed.
func TestAFormerMembersDiskNamesNobody(t *testing.T) {
	c, client := calmlyGrown(t, unchanged, "reeve-1", "reeve-2", "reeve-3")
	c.nodes["reeve-3"].stop()
	thief := forged(t, authorityOn(t, c, "reeve-3"), told(t, client).Members[1])
	before := authorities(t, c, "reeve-1")[0].Raw
	if err := reaches(c.places["reeve-1"], thief); err != nil {
		t.Fatalf("this test shows nothing: a certificate that the members' CA has signed is refused: %v", err)
	}
	conn, err := tls.Dial("tcp", c.places["reeve-1"], thief)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c.want(client, "reeve-1", "reeve-2")
	c.await(client, "the removal is done", settled("reeve-1", "reeve-2"))
	storetest.Eventually(t, "the CA is replaced", func() bool { return c.replaced(before, "reeve-1", "reeve-2") })
	if err := conn.SetReadDeadline(time.Now().Add(storetest.Bound)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		t.Errorf("a connection in the name of a member outlived the CA by which it was made: %v", err)
	}
	for _, id := range []string{"reeve-1", "reeve-2"} {
		storetest.Eventually(t, id+" lets in nobody by the former CA", func() bool { return reaches(c.places[id], thief) != nil })
	}
	c.await(client, "the replacement is done", func(s *consensusv1.StoreState) bool {
		return s.PeerAuthorityStep == "" && settled("reeve-1", "reeve-2")(s)
	})
	c.nodes["reeve-2"].stop()
	var sits impostor
	sits.sit(t, c.places["reeve-2"], thief)
	storetest.Eventually(t, "the other member tries to reach the one whose address it is", func() bool { return sits.tried.Load() >= 10 })
	if n := sits.believed.Load(); n != 0 {
		t.Errorf("%d of %d connections were made with who has the former CA", n, sits.tried.Load())
	}
}

// askForAuthority has the cluster API ask for another CA of the peers.
func (c *cluster) askForAuthority(client *clientv3.Client, times uint64, members ...string) {
	c.t.Helper()
	content, err := proto.Marshal(&consensusv1.DesiredState{Members: members, PeerAuthorities: times})
	if err != nil {
		c.t.Fatal(err)
	}
	c.revision = c.put(client, consensusv1.DesiredStateKey, string(content))
}

// TestReplacementWaitsForEveryMember asks for another CA while a member is off: nobody forgets the CA by which it is known, what is waited for is told, and it comes back as if nothing
// had been.
func TestReplacementWaitsForEveryMember(t *testing.T) {
	all := []string{"reeve-1", "reeve-2", "reeve-3"}
	c, client := calmlyGrown(t, unchanged, all...)
	before := authorities(t, c, "reeve-1")[0].Raw
	c.nodes["reeve-3"].stop()
	c.askForAuthority(client, 1, all...)
	c.await(client, "it is told who is waited for", func(s *consensusv1.StoreState) bool {
		return strings.Contains(s.PeerAuthorityStep, "the members of reeve-3 have yet to trust the new CA")
	})
	for _, id := range all[:2] {
		if trusted := authorities(t, c, id); len(trusted) != 2 || !bytes.Equal(trusted[0].Raw, before) {
			t.Errorf("%s trusts %d CAs, and the first is the one that all know: %t", id, len(trusted), bytes.Equal(trusted[0].Raw, before))
		}
	}
	c.again("reeve-3")
	c.await(client, "the replacement is done", func(s *consensusv1.StoreState) bool { return s.PeerAuthorityStep == "" && settled(all...)(s) })
	if !c.replaced(before, all...) {
		t.Error("it is told to be done, and the members do not trust the same new CA alone")
	}
	// Each of them is started by the new one alone, and the store has a quorum without any other.
	for _, id := range all[1:] {
		c.nodes[id].stop()
		c.put(client, "without", id)
		c.again(id)
		c.await(client, id+" is back", settled(all...))
	}
}

// TestReplacementGoesOnAfterACrash ends the leader before each step of it, and a member at any time. No write is lost, and the CA is replaced in the end.
func TestReplacementGoesOnAfterACrash(t *testing.T) {
	for _, step := range []string{"prepare-authority", "activate-authority", "retire-authority"} {
		t.Run(step, func(t *testing.T) {
			all := []string{"reeve-1", "reeve-2", "reeve-3"}
			var asked atomic.Bool
			crashed, released := make(chan string, 8), make(chan struct{})
			release := sync.OnceFunc(func() { close(released) })
			defer release()
			c, client := calmlyGrown(t, func(id string) func(*service.Config) {
				return func(config *service.Config) {
					config.Before = func(at string) {
						if at == step && asked.Load() {
							crashed <- id
							<-released
						}
					}
				}
			}, all...)
			asked.Store(true)
			before := authorities(t, c, all[0])[0].Raw
			c.askForAuthority(client, 1, all...)
			var leader string
			select {
			case leader = <-crashed:
			case <-time.After(storetest.Bound):
				t.Fatal("the step was never taken")
			}
			var stopping sync.WaitGroup
			stopping.Go(c.nodes[leader].stop)
			release()
			stopping.Wait()
			c.again(leader)
			client = c.nodes[leader].client()
			c.await(client, "the replacement is done", func(s *consensusv1.StoreState) bool { return s.PeerAuthorityStep == "" && settled(all...)(s) })
			if !c.replaced(before, all...) {
				t.Error("it is told to be done, and the members do not trust the same new CA alone")
			}
		})
	}
}

// TestNoWriteFailsWhileTheCAIsReplaced writes all the time, by a leader that stays: it is connected to a majority whoever forgets the old CA. No machine is so busy that its members elect another one.
func TestNoWriteFailsWhileTheCAIsReplaced(t *testing.T) {
	all := []string{"reeve-1", "reeve-2", "reeve-3"}
	c, client := calmlyGrown(t, func(string) func(*service.Config) { return calm(4 * calmElection) }, all...)
	for times := uint64(1); times <= 2; times++ {
		before := authorities(t, c, all[0])[0].Raw
		c.askForAuthority(client, times, all...)
		storetest.Eventually(t, "the CA is replaced", func() bool {
			if _, err := client.Put(storetest.Context(t), "/reeve/users/curator/count", fmt.Sprint(times)); err != nil {
				t.Fatalf("a write failed: %v", err)
			}
			return c.replaced(before, all...)
		})
	}
}
