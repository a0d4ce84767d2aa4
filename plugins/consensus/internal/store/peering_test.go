package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/version"

	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
	"github.com/reeveproject/reeve/proto/identity"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

type anybody struct{}

func (anybody) Admit(peers.Name) error { return nil }

func credentials(t *testing.T, authority *peers.Authority, name peers.Name) *peers.Credentials {
	t.Helper()
	files := peers.Files{Directory: t.TempDir()}
	key, err := files.Key()
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := authority.Issue(key.Public(), name)
	if err != nil {
		t.Fatal(err)
	}
	if err := files.Install(certificate, authority.Certificates(), name); err != nil {
		t.Fatal(err)
	}
	loaded, err := files.Load()
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

// pretend has something that is no store listen in a member's place, and returns its address.
func pretend(t *testing.T, who *peers.Credentials, handler http.HandlerFunc) string {
	t.Helper()
	bound, err := peers.Bind("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener := peers.Serve(storetest.Log(t), bound, func() (*peers.Credentials, error) { return who, nil }, anybody{}, handler)
	t.Cleanup(listener.Close)
	return listener.Addr().String()
}

// TestMemberThatCannotBindLeavesTheRemoved closes its connections to a removed member although nobody reaches it.
func TestMemberThatCannotBindLeavesTheRemoved(t *testing.T) {
	config, place := placed(t, storetest.Config(t, storetest.Directory(t)))
	s, _ := storetest.OpenWith(t, config, storetest.Plan)
	s.Expect()
	storetest.Eventually(t, "the member listens", func() bool { return s.Peers()[0].Listens() })
	authority, err := s.Authority()
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	address := pretend(t, credentials(t, authority, peers.Name{Cluster: "cluster-a", Node: "reeve-2", Member: 0xab}), func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-over
	})
	t.Cleanup(func() { close(over) })
	changeMembers(t, "the learner is added", func(ctx context.Context) error { return s.AddLearner(ctx, 0xab, "reeve-2", address) })
	place.Set(store.Place{Listen: "192.0.2.1:1", Host: "192.0.2.1"})
	storetest.Eventually(t, "the member cannot be reached", func() bool { now, _ := s.Status().Get(); return now.Unreachable != "" })
	answer, err := (&http.Client{Transport: s.Outgoing().Streams()}).Get(peers.URL(address))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	changeMembers(t, "the learner is removed", func(ctx context.Context) error { return s.RemoveMember(ctx, 0xab) })
	storetest.Eventually(t, "nothing goes to the removed member", func() bool { return !s.Outgoing().Connected(0xab) })
}

// TestJoinerBelievesTheMembersOnly refuses a removed member, of which it has not heard, before it has taken anything over.
func TestJoinerBelievesTheMembersOnly(t *testing.T) {
	const member, former = 0xab, 0xaf
	authority, err := peers.NewAuthority("cluster-a")
	if err != nil {
		t.Fatal(err)
	}
	itself := credentials(t, authority, peers.Name{Cluster: "cluster-a", Node: "reeve-1", Member: member})
	address := pretend(t, itself, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Etcd-Cluster-ID", "cd")
		switch r.URL.Path {
		case "/version":
			_ = json.NewEncoder(w).Encode(version.Versions{Server: version.Version, Cluster: version.Version})
		case "/members":
			_, _ = io.WriteString(w, "[]")
		default:
			http.NotFound(w, r)
		}
	})
	config, place := placed(t, storetest.Config(t, storetest.Directory(t)))
	waits := make(chan struct{})
	once := sync.OnceFunc(func() { close(waits) })
	config.Waiting = func(string) { once() }
	at, _ := place.Get()
	var joiner atomic.Uint64 // who is cut off asks again, while the test reads it
	config.Join = func(_ context.Context, request *consensusv1.JoinRequest) (*consensusv1.JoinResponse, error) {
		key, err := identity.RequestedKey(request.CertificateRequest)
		if err != nil {
			return nil, err
		}
		own, err := peers.ParseMember(request.Attempt)
		if err != nil {
			return nil, err
		}
		joiner.Store(own)
		certificate, err := authority.Issue(key, peers.Name{Cluster: "cluster-a", Node: "reeve-2", Member: own})
		if err != nil {
			return nil, err
		}
		return &consensusv1.JoinResponse{
			MemberId: request.Attempt, Certificate: [][]byte{certificate}, CaCertificates: authority.Certificates(),
			Members: []*consensusv1.StorePeer{
				{MemberId: peers.FormatMember(member), NodeId: "reeve-1", PeerUrls: []string{peers.URL(address)}},
				{MemberId: request.Attempt, NodeId: "reeve-2", PeerUrls: []string{peers.URL(request.PeerAddress)}, Learner: true},
			},
		}, nil
	}
	ctx, cancel := context.WithCancel(storetest.Context(t))
	var opening sync.WaitGroup
	opening.Go(func() {
		s, err := store.Open(ctx, config, store.Plan{ClusterID: "cluster-a", NodeID: "reeve-2", ClusterUser: "curator", Join: true})
		if err == nil {
			s.Close()
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("a joiner that nobody has taught: %v", err)
		}
	})
	defer opening.Wait()
	defer cancel()
	select {
	case <-waits:
	case <-time.After(storetest.Bound):
		t.Fatal("the joiner does not say what it waits for")
	}
	reach := func(who *peers.Credentials) error {
		answer, err := peers.Client(who, joiner.Load(), storetest.Bound).Get(peers.URL(at.Listen) + "/reeve/state")
		if err == nil {
			answer.Body.Close()
		}
		return err
	}
	if err := reach(itself); err != nil {
		t.Errorf("a member of which the joiner was told: %v", err)
	}
	for name, stranger := range map[string]peers.Name{
		"one of which it was not told":  {Cluster: "cluster-a", Node: "reeve-3", Member: former},
		"a member's ID of another node": {Cluster: "cluster-a", Node: "reeve-3", Member: member},
	} {
		if err := reach(credentials(t, authority, stranger)); err == nil || strings.Contains(err.Error(), "refused") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
