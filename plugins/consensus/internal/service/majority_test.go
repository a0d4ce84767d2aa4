package service_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

const oneRecovery, otherRecovery = "000102030405060708090a0b0c0d0e0f", "ff0102030405060708090a0b0c0d0e0f"

func (n *node) member() *consensusv1.MemberState {
	n.cluster.t.Helper()
	var state *consensusv1.MemberState
	storetest.Eventually(n.cluster.t, "the member of "+n.id+" says how it is", func() bool {
		answer, err := n.GetMember(storetest.Context(n.cluster.t), &consensusv1.GetMemberRequest{})
		state = answer.GetMember()
		return err == nil
	})
	return state
}

func (n *node) promise(id, chosen string) (*consensusv1.MemberState, error) {
	answer, err := n.PromiseRecovery(storetest.Context(n.cluster.t), &consensusv1.PromiseRecoveryRequest{RecoveryId: id, NodeId: chosen})
	return answer.GetMember(), err
}

// promised waits until the member finds that it has no quorum.
func (n *node) promised(id, chosen string) *consensusv1.MemberState {
	n.cluster.t.Helper()
	var state *consensusv1.MemberState
	var err error
	storetest.Eventually(n.cluster.t, "the member of "+n.id+" promises", func() bool {
		state, err = n.promise(id, chosen)
		if err != nil && !strings.Contains(err.Error(), "has a quorum") && status.Code(err) != codes.Unavailable {
			n.cluster.t.Fatal(err)
		}
		return err == nil
	})
	return state
}

func (n *node) recoverQuorum(id string) (*consensusv1.MemberState, error) {
	answer, err := n.RecoverQuorum(storetest.Context(n.cluster.t), &consensusv1.RecoverQuorumRequest{RecoveryId: id})
	return answer.GetMember(), err
}

func value(t *testing.T, n *node, key string) string {
	t.Helper()
	answer, err := n.client().Get(storetest.Context(t), consensusv1.UserPrefix("curator")+key)
	if err != nil {
		t.Fatal(err)
	}
	if len(answer.Kvs) == 0 {
		return ""
	}
	return string(answer.Kvs[0].Value)
}

// TestRecoverQuorum loses two of three members, makes the third the only one, and has the others come back, who know more than it: they join anew.
func TestRecoverQuorum(t *testing.T) {
	c, client := grown(t, "reeve-1", "reeve-2", "reeve-3")
	for n := range 20 {
		c.put(client, fmt.Sprintf("k/%d", n), "acknowledged")
	}
	survivor := c.nodes["reeve-3"]
	storetest.Eventually(t, "the survivor has the writes", func() bool {
		return survivor.member().AppliedIndex >= c.nodes["reeve-1"].member().CommittedIndex
	})
	storetest.Eventually(t, "with a quorum it promises nothing", func() bool {
		_, err := survivor.promise(oneRecovery, "")
		if err == nil { // it saw none for a moment
			_, _ = survivor.AbandonRecovery(storetest.Context(t), &consensusv1.AbandonRecoveryRequest{RecoveryId: oneRecovery})
		}
		return status.Code(err) == codes.FailedPrecondition && strings.Contains(err.Error(), "has a quorum, and member")
	})
	survivor.stop()
	lost := c.put(client, "lost", "only the two have it")
	c.nodes["reeve-1"].stop()
	c.nodes["reeve-2"].stop()

	survivor = c.start("reeve-3")
	ctx, cancel := context.WithCancel(storetest.Context(t))
	defer cancel()
	forming := make(chan error, 1)
	go func() {
		_, err := survivor.Form(ctx, &consensusv1.FormRequest{ClusterId: "cluster-a", NodeId: "reeve-3", ClusterUser: "curator", How: &consensusv1.FormRequest_Existing{Existing: &consensusv1.FormExisting{}}})
		forming <- err
	}()
	before := survivor.promised(oneRecovery, "")
	if before.Recovery.GetPhase() != consensusv1.QuorumRecoveryPhase_QUORUM_RECOVERY_PHASE_PROMISED || before.Quorum || !before.Voter || before.LastIndex == 0 || before.LastTerm == 0 || len(before.Members) != 3 {
		t.Errorf("promised: %v", before)
	}
	if _, err := survivor.recoverQuorum(oneRecovery); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("without a chosen node: %v", err)
	}
	if _, err := survivor.promise(oneRecovery, "reeve-3"); err != nil {
		t.Fatal(err)
	}
	if _, err := survivor.promise(oneRecovery, "reeve-1"); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "node reeve-3") {
		t.Errorf("another node is chosen: %v", err)
	}
	if _, err := survivor.promise(otherRecovery, ""); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), oneRecovery) {
		t.Errorf("another recovery: %v", err)
	}
	began := time.Now()
	after, err := survivor.recoverQuorum(oneRecovery)
	if err != nil {
		t.Fatal(err)
	}
	if after.Generation < uint64(began.Unix()) || hex.EncodeToString(after.GenerationId) != oneRecovery || len(after.Members) != 1 || after.MemberId == before.MemberId || after.Revision < before.Revision+1_000_000_000 ||
		after.Recovery.GetPhase() != consensusv1.QuorumRecoveryPhase_QUORUM_RECOVERY_PHASE_DONE {
		t.Errorf("recovered: %v", after)
	}
	storetest.Eventually(t, "it has a quorum of itself", func() bool { return survivor.member().Quorum })
	if err := <-forming; err != nil {
		t.Fatal(err)
	}
	again, err := survivor.recoverQuorum(oneRecovery)
	if err != nil || again.Generation != after.Generation {
		t.Errorf("said again: %v, %v", again, err)
	}
	for n := range 20 {
		if value(t, survivor, fmt.Sprintf("k/%d", n)) != "acknowledged" {
			t.Errorf("the write %d is lost", n)
		}
	}
	if value(t, survivor, "lost") != "" {
		t.Error("what only the others have is there")
	}

	// Who has read what is lost, and watches from there on, is told to read everything again.
	seen := <-survivor.client().Watch(storetest.Context(t), consensusv1.UserPrefix("curator"), clientv3.WithPrefix(), clientv3.WithRev(lost+1))
	if seen.CompactRevision <= lost {
		t.Errorf("a watch goes on where the lost members were: %v", seen)
	}

	// The others come back, with a majority of the former members between them, and more than the survivor had.
	c.directory.follow(after, "reeve-1", "reeve-2", "reeve-3")
	var back []*node
	for _, id := range []string{"reeve-1", "reeve-2"} {
		back = append(back, c.start(id))
	}
	for _, n := range back {
		go func() { _ = n.form("existing") }()
	}
	for _, n := range back { // what the leader told before the loss is there until it tells something else
		storetest.Eventually(t, n.id+" has joined anew", func() bool { return n.member().Generation == after.Generation })
	}
	c.await(survivor.client(), "the others vote again", settled("reeve-1", "reeve-2", "reeve-3"))
	for _, n := range back {
		if state := n.member(); state.Generation != after.Generation || state.MemberId == after.MemberId {
			t.Errorf("%v", state)
		}
		if value(t, n, "lost") != "" || value(t, n, "k/19") != "acknowledged" {
			t.Errorf("%s does not have what the survivor had", n.id)
		}
		if _, err := os.Stat(filepath.Join(c.root, n.id, "data", "former", "etcd", "member", "snap", "db")); err != nil {
			t.Errorf("the data of %s was not put aside: %v", n.id, err)
		}
	}
}

// recovered is the last of three nodes, whose member was made the only one after the others had ended.
func recovered(t *testing.T, c *cluster, survivor string, others ...string) *node {
	t.Helper()
	for _, id := range others {
		c.nodes[id].stop()
	}
	n := c.nodes[survivor]
	n.promised(oneRecovery, survivor)
	if _, err := n.recoverQuorum(oneRecovery); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestRecoveryGoesOn begins again from each thing that a killed role leaves. Nothing is done twice, and nothing is lost.
func TestRecoveryGoesOn(t *testing.T) {
	c, client := grown(t, "reeve-1", "reeve-2")
	c.put(client, "k", "v")
	n := recovered(t, c, "reeve-1", "reeve-2")
	c.put(n.client(), "later", "v")
	for _, phase := range []store.PromisePhase{store.Begun, store.Forced} {
		n.stop()
		directory := filepath.Join(c.root, "reeve-1", "data")
		promise, err := store.ReadPromise(directory)
		if err != nil || promise.Phase != store.Done {
			t.Fatalf("%v, %v", promise, err)
		}
		promise.Phase = phase
		if err := promise.Write(directory); err != nil {
			t.Fatal(err)
		}
		n = c.start("reeve-1")
		if err := n.form("existing"); err != nil {
			t.Fatalf("from %s: %v", phase, err)
		}
		if state := n.member(); hex.EncodeToString(state.GenerationId) != oneRecovery || len(state.Members) != 1 || state.Recovery.GetPhase() != consensusv1.QuorumRecoveryPhase_QUORUM_RECOVERY_PHASE_DONE {
			t.Errorf("from %s: %v", phase, state)
		}
		if value(t, n, "k") != "v" || value(t, n, "later") != "v" {
			t.Errorf("from %s: writes are lost", phase)
		}
	}
}

// TestTwoRecoveries has two operators recover by two survivors: neither goes on before the other has given up.
func TestTwoRecoveries(t *testing.T) {
	c, _ := grown(t, "reeve-1", "reeve-2", "reeve-3", "reeve-4")
	c.nodes["reeve-3"].stop()
	c.nodes["reeve-4"].stop()
	one, other := c.nodes["reeve-1"], c.nodes["reeve-2"]
	one.promised(oneRecovery, "")
	other.promised(otherRecovery, "")
	for _, refused := range []func() error{
		func() error { _, err := other.promise(oneRecovery, "reeve-1"); return err },
		func() error { _, err := one.promise(otherRecovery, "reeve-2"); return err },
		func() error { _, err := other.recoverQuorum(oneRecovery); return err },
		func() error {
			_, err := other.AbandonRecovery(storetest.Context(t), &consensusv1.AbandonRecoveryRequest{RecoveryId: oneRecovery})
			return err
		},
	} {
		if err := refused(); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "another recovery") {
			t.Errorf("not refused: %v", err)
		}
	}
	if _, err := other.AbandonRecovery(storetest.Context(t), &consensusv1.AbandonRecoveryRequest{RecoveryId: otherRecovery}); err != nil {
		t.Fatal(err)
	}
	other.promised(oneRecovery, "reeve-1")
	if _, err := other.recoverQuorum(oneRecovery); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("who was not chosen becomes the only one: %v", err)
	}
	if _, err := one.promise(oneRecovery, "reeve-1"); err != nil {
		t.Fatal(err)
	}
	if _, err := one.recoverQuorum(oneRecovery); err != nil {
		t.Fatal(err)
	}
	after := one.member()
	c.directory.follow(after, "reeve-1", "reeve-2")
	storetest.Eventually(t, "who has promised joins anew", func() bool { return other.member().Generation == after.Generation })
	c.want(one.client(), "reeve-1", "reeve-2")
	c.await(one.client(), "both vote", settled("reeve-1", "reeve-2"))
	if state := other.member(); state.Recovery != nil {
		t.Errorf("the promise outlives the member: %v", state)
	}
}

// TestAbandonedRecovery gives a promise up: with the lost member the store has its majority again.
func TestAbandonedRecovery(t *testing.T) {
	c, client := grown(t, "reeve-1", "reeve-2")
	c.nodes["reeve-2"].stop()
	first := c.nodes["reeve-1"]
	first.promised(oneRecovery, "reeve-1")
	c.start("reeve-2")
	go func() { _ = c.nodes["reeve-2"].form("existing") }()
	if _, err := first.AbandonRecovery(storetest.Context(t), &consensusv1.AbandonRecoveryRequest{RecoveryId: oneRecovery}); err != nil {
		t.Fatal(err)
	}
	c.put(client, "k", "v")
	if first.member().Generation != 0 {
		t.Error("there is a new generation")
	}
	if _, err := first.recoverQuorum(oneRecovery); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("what was given up is done: %v", err)
	}
}

// TestUnusableSurvivor holds that a member whose log is damaged says so when it has promised, and never becomes the only one.
func TestUnusableSurvivor(t *testing.T) {
	c, _ := grown(t, "reeve-1", "reeve-2")
	c.nodes["reeve-2"].stop()
	survivor := c.nodes["reeve-1"]
	segments, err := filepath.Glob(filepath.Join(c.root, "reeve-1", "data", "etcd", "member", "wal", "*.wal"))
	if err != nil || len(segments) == 0 {
		t.Fatal(segments, err)
	}
	log, err := os.OpenFile(segments[0], os.O_RDWR, 0) // which etcd writes further
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	content, err := os.ReadFile(segments[0])
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(content, []byte("peerURLs")) // in an entry, and no length of one
	if _, err := log.WriteAt([]byte{^content[at]}, int64(at)); at < 0 || err != nil {
		t.Fatal(at, err)
	}
	state := survivor.promised(oneRecovery, "reeve-1")
	if !state.Unusable || !strings.Contains(state.Damage, filepath.Base(segments[0])) {
		t.Errorf("promised: %v", state)
	}
	if _, err := survivor.recoverQuorum(oneRecovery); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "--abandon") {
		t.Errorf("it becomes the only one: %v", err)
	}
	if _, err := survivor.AbandonRecovery(storetest.Context(t), &consensusv1.AbandonRecoveryRequest{RecoveryId: oneRecovery}); err != nil {
		t.Error(err)
	}
}

// TestDataOfAnotherGeneration is refused a place, whoever has it.
func TestDataOfAnotherGeneration(t *testing.T) {
	c, client := grown(t, "reeve-1", "reeve-2")
	c.want(client, "reeve-1", "reeve-2", "reeve-3")
	ours := recovered(t, c, "reeve-1", "reeve-2").member()
	id, _ := hex.DecodeString(oneRecovery)
	for name, test := range map[string]struct {
		change func(*consensusv1.JoinRequest)
		code   codes.Code
	}{
		"a former one":         {func(*consensusv1.JoinRequest) {}, codes.Aborted},
		"another one":          {func(r *consensusv1.JoinRequest) { r.Generation, r.GenerationId = ours.Generation, []byte("another") }, codes.Aborted},
		"a later one":          {func(r *consensusv1.JoinRequest) { r.Generation, r.GenerationId = ours.Generation+1, []byte("another") }, codes.Aborted},
		"this one":             {func(r *consensusv1.JoinRequest) { r.Generation, r.GenerationId = ours.Generation, id }, codes.OK},
		"none":                 {func(r *consensusv1.JoinRequest) { r.HasData = false }, codes.OK},
		"none, follows former": {func(r *consensusv1.JoinRequest) { r.HasData, r.Follows = false, true }, codes.Aborted},
		"none, follows this": {func(r *consensusv1.JoinRequest) {
			r.HasData, r.Follows, r.Generation, r.GenerationId = false, true, ours.Generation, id
		}, codes.OK},
	} {
		request := joinRequest(t, "ab", "127.0.0.1:1")
		request.HasData = true
		test.change(request)
		var answer *consensusv1.JoinResponse
		var err error
		storetest.Eventually(t, name+" is answered", func() bool {
			answer, err = c.ask("reeve-3", "reeve-1", request)
			return status.Code(err) != codes.Unavailable
		})
		if status.Code(err) != test.code {
			t.Errorf("%s: %v", name, err)
		}
		if details := status.Convert(err).Details(); err != nil && (len(details) != 1 || details[0].(*consensusv1.OtherGeneration).GetGeneration() != ours.Generation) {
			t.Errorf("%s: %v", name, details)
		}
		if said := status.Convert(err).Message(); err != nil && (!strings.Contains(said, "the member of node reeve-3 is of") || !strings.Contains(said, "that of node reeve-1 of generation")) {
			t.Errorf("%s: it does not name both nodes: %s", name, said)
		}
		if err == nil && (answer.Generation != ours.Generation || string(answer.GenerationId) != string(id)) {
			t.Errorf("%s: %v", name, answer)
		}
	}
}

// TestStartedAgain has a member that was stopped fail to start, for a reason that goes away: the role says so, and starts it again by itself.
func TestStartedAgain(t *testing.T) {
	c, _ := grown(t, "reeve-1", "reeve-2")
	c.nodes["reeve-2"].stop()
	first, sockets := c.nodes["reeve-1"], filepath.Join(c.root, "reeve-1", "run", "peer")
	first.promised(oneRecovery, "reeve-1")
	if err := os.RemoveAll(sockets); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(sockets, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := first.recoverQuorum(oneRecovery); status.Code(err) != codes.Unavailable {
		t.Errorf("a member that does not start: %v", err)
	}
	storetest.Eventually(t, "the role says that the member does not start", func() bool {
		return first.form("existing") != nil && strings.Contains(first.reporter.last(), "is started again: ")
	})
	if err := os.Remove(sockets); err != nil {
		t.Fatal(err)
	}
	storetest.Eventually(t, "the member is the only one", func() bool {
		state, err := first.recoverQuorum(oneRecovery)
		return err == nil && state.Generation > 0 && first.reporter.last() == "ready"
	})
}

// TestLivingMajorityKeepsItsData makes one member the only one while the others, who were only cut off, have a majority. Their members give themselves up when their nodes follow the other store, and not before.
func TestLivingMajorityKeepsItsData(t *testing.T) {
	all := []string{"reeve-1", "reeve-2", "reeve-3"}
	c, client := grown(t, all...)
	c.put(client, "k", "v")
	survivor := recovered(t, c, "reeve-3", "reeve-1", "reeve-2").member()
	c.directory.follow(survivor, "reeve-3")
	c.directory.follow(&consensusv1.MemberState{}, "reeve-1", "reeve-2")
	majority := []*node{c.start("reeve-1"), c.start("reeve-2")}
	forms := make(chan error)
	for _, n := range majority {
		go func() { forms <- n.form("existing") }()
	}
	for range majority {
		if err := <-forms; err != nil {
			t.Fatal(err)
		}
	}
	c.put(majority[0].client(), "later", "v")

	// All find each other, and one of each store starts again.
	before := majority[1].member()
	majority[1].stop()
	majority[1] = c.start("reeve-2")
	c.nodes["reeve-3"].stop()
	c.start("reeve-3")
	for _, n := range []*node{majority[1], c.nodes["reeve-3"]} {
		if err := n.form("existing"); err != nil {
			t.Fatal(err)
		}
	}
	if state := majority[1].member(); state.MemberId != before.MemberId || state.Generation != 0 || value(t, majority[1], "later") != "v" {
		t.Errorf("a member of the living majority became %v", state)
	}
	if state := c.nodes["reeve-3"].member(); state.MemberId != survivor.MemberId || state.Generation != survivor.Generation {
		t.Errorf("the only member became %v", state)
	}

	c.want(c.nodes["reeve-3"].client(), all...)
	c.directory.follow(survivor, "reeve-1", "reeve-2")
	for _, n := range majority {
		storetest.Eventually(t, n.id+" comes to the store that its node follows", func() bool { return n.member().Generation == survivor.Generation })
	}
	c.await(c.nodes["reeve-3"].client(), "all vote", settled(all...))
	if value(t, majority[1], "later") != "" {
		t.Error("what only the former store had is there")
	}
}
