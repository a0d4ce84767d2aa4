package command

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// survivingNode is the own API of a node with a member.
type survivingNode struct {
	nodev1.NodeServiceClient
	member *consensusv1.MemberState
	breaks bool // it finds its files damaged when it has promised
	forced bool
	gaveUp []string // the recoveries that it was told to give up
}

func (n *survivingNode) GetStoreMember(context.Context, *nodev1.GetStoreMemberRequest, ...grpc.CallOption) (*nodev1.GetStoreMemberResponse, error) {
	return &nodev1.GetStoreMemberResponse{Member: n.member}, nil
}

func (n *survivingNode) PromiseRecovery(_ context.Context, request *nodev1.PromiseRecoveryRequest, _ ...grpc.CallOption) (*nodev1.PromiseRecoveryResponse, error) {
	if n.member.Recovery == nil {
		n.member.Recovery = &consensusv1.QuorumRecovery{Id: request.RecoveryId, Phase: consensusv1.QuorumRecoveryPhase_QUORUM_RECOVERY_PHASE_PROMISED}
	}
	if n.breaks {
		unusable(n.member)
	}
	if request.NodeId != "" {
		n.member.Recovery.NodeId = request.NodeId
	}
	return &nodev1.PromiseRecoveryResponse{Member: n.member}, nil
}

func (n *survivingNode) AbandonRecovery(_ context.Context, request *nodev1.AbandonRecoveryRequest, _ ...grpc.CallOption) (*nodev1.AbandonRecoveryResponse, error) {
	n.gaveUp = append(n.gaveUp, request.RecoveryId)
	return &nodev1.AbandonRecoveryResponse{}, nil
}

func (n *survivingNode) RecoverQuorum(context.Context, *nodev1.RecoverQuorumRequest, ...grpc.CallOption) (*nodev1.RecoverQuorumResponse, error) {
	n.forced = true
	return &nodev1.RecoverQuorumResponse{Member: n.member}, nil
}

// survived is a voter of a store of five, with as many entries as are said.
func survived(id string, entries uint64, change func(*consensusv1.MemberState)) *survivingNode {
	state := &consensusv1.MemberState{ClusterId: "c", NodeId: id, MemberId: "of-" + id, Voter: true, LastTerm: 2, LastIndex: entries}
	for _, node := range []string{"a", "b", "c", "d", "e"} {
		state.Members = append(state.Members, &consensusv1.StoreMember{Id: "of-" + node, Name: node})
	}
	if change != nil {
		change(state)
	}
	return &survivingNode{member: state}
}

func generation(number uint64, id string) func(*consensusv1.MemberState) {
	return func(m *consensusv1.MemberState) { m.Generation, m.GenerationId = number, []byte(id) }
}

func promisedFor(node string) func(*consensusv1.MemberState) {
	return func(m *consensusv1.MemberState) {
		m.Recovery = &consensusv1.QuorumRecovery{Id: "r", NodeId: node, Phase: consensusv1.QuorumRecoveryPhase_QUORUM_RECOVERY_PHASE_PROMISED}
	}
}

// promised is a promise of a recovery with another ID.
func promised(id string) func(*consensusv1.MemberState) {
	return func(m *consensusv1.MemberState) {
		promisedFor("")(m)
		m.Recovery.Id = id
	}
}

func doubted(m *consensusv1.MemberState) { m.Damage = "it holds other data than that of e" }

func unusable(m *consensusv1.MemberState) { m.Damage, m.Unusable = "member/snap/db is damaged", true }

func broken(n *survivingNode) *survivingNode {
	n.breaks = true
	return n
}

// askNodes returns a run of the command that has asked some nodes of the cluster c.
func askNodes(t *testing.T, environment Environment, nodes ...*survivingNode) (*quorumRecovery, error) {
	environment.Now = time.Now
	r := &quorumRecovery{commands: &commands{Environment: environment, format: output.JSON}, clusterID: "c"}
	var own []target.Own
	for _, node := range nodes {
		own = append(own, target.Own{Node: target.Node{ID: node.member.NodeId}, API: node})
	}
	r.ask(t.Context(), own)
	return r, r.sort()
}

// TestChooseSurvivor chooses the freshest member of the newest generation, and nobody where that could make two stores of one.
func TestChooseSurvivor(t *testing.T) {
	formerOnly := func(m *consensusv1.MemberState) {
		generation(1, "x")(m)
		m.Members = []*consensusv1.StoreMember{{Id: "of-a", Name: "a"}, {Id: "of-b", Name: "b"}, {Id: "of-c", Name: "c", Learner: true}}
	}
	for name, test := range map[string]struct {
		nodes   []*survivingNode
		chosen  string   // empty: it is refused
		refused []string // what the refusal says
		spared  []string // who promises nothing
	}{
		"the freshest":                    {nodes: []*survivingNode{survived("a", 5, nil), survived("b", 6, nil)}, chosen: "b"},
		"a majority answers":              {nodes: []*survivingNode{survived("a", 5, nil), survived("b", 6, nil), survived("c", 6, nil)}, refused: []string{"3 of the 5"}},
		"a longer log of a former one":    {nodes: []*survivingNode{survived("a", 5, generation(1, "x")), survived("b", 60, nil)}, chosen: "a", spared: []string{"b"}},
		"a majority with those of former": {nodes: []*survivingNode{survived("a", 5, formerOnly), survived("b", 6, nil), survived("c", 6, nil)}, chosen: "a", spared: []string{"b", "c"}},
		"a promise of a former one": {nodes: []*survivingNode{survived("a", 5, generation(1, "x")), survived("b", 60, promisedFor("b"))},
			chosen: "a", spared: []string{"b"}},
		"two of one number":    {nodes: []*survivingNode{survived("a", 5, generation(1, "x")), survived("b", 6, generation(1, "y"))}, refused: []string{"node a ", "node b "}},
		"one is doubted":       {nodes: []*survivingNode{survived("a", 5, doubted), survived("b", 5, nil)}, chosen: "b"},
		"the doubted has more": {nodes: []*survivingNode{survived("a", 6, doubted), survived("b", 5, nil)}, chosen: "a"},
		"one is unusable":      {nodes: []*survivingNode{survived("a", 6, unusable), survived("b", 5, nil)}, chosen: "b"},
		"the freshest breaks":  {nodes: []*survivingNode{broken(survived("a", 6, nil)), survived("b", 5, nil)}, refused: []string{"node a has more than that of node b", "member/snap/db is damaged"}},
		"another one breaks":   {nodes: []*survivingNode{survived("a", 6, nil), broken(survived("b", 5, nil))}, chosen: "a"},
		"the only one is":      {nodes: []*survivingNode{survived("a", 6, unusable)}, refused: []string{"the files of each are damaged"}},
		"chosen before":        {nodes: []*survivingNode{survived("a", 5, promisedFor("b")), survived("b", 5, promisedFor("b"))}, chosen: "b"},
		"a fresher one came": {nodes: []*survivingNode{survived("a", 5, promisedFor("a")), survived("b", 6, nil)},
			refused: []string{"chosen the member of node a", "node b", "--abandon"}},
		"the chosen one is away": {nodes: []*survivingNode{survived("a", 5, promisedFor("c"))}, refused: []string{"node c", "Bring node c back"}},
		"two were begun": {nodes: []*survivingNode{survived("a", 5, promisedFor("")), survived("b", 6, promised("s"))},
			refused: []string{"two recoveries were begun: node b has promised s, and another node r", "--abandon"}},
		"two were begun, and each has chosen": {nodes: []*survivingNode{survived("a", 5, promisedFor("a")), survived("b", 6, func(m *consensusv1.MemberState) {
			promised("s")(m)
			m.Recovery.NodeId = "b"
		})}, refused: []string{"two recoveries were begun"}},
		"a majority has promised": {nodes: []*survivingNode{survived("a", 5, promisedFor("")), survived("b", 5, nil), survived("c", 5, nil)}, refused: []string{"--abandon"}},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := askNodes(t, Environment{Stdout: io.Discard, Stderr: io.Discard}, test.nodes...)
			for _, step := range []func() error{r.findRecovery, r.check, func() error { return r.run(t.Context(), recoverQuorumOptions{clusterID: "c"}) }} {
				if err == nil {
					err = step()
				}
			}
			if (err == nil) != (test.chosen != "") || err != nil && fault.CodeOf(err) != fault.Refused {
				t.Fatal(err)
			}
			for _, text := range test.refused {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%q is not said: %v", text, err)
				}
			}
			for _, node := range test.nodes {
				id := node.member.NodeId
				if node.forced != (id == test.chosen) {
					t.Errorf("%s became the only one: %v", id, node.forced)
				}
				if spared := slices.Contains(test.spared, id); spared == (node.member.Recovery.GetId() == r.id) && err == nil {
					t.Errorf("%s has promised: %v", id, node.member.Recovery)
				}
			}
		})
	}
}

// TestConfirmRecovery makes nobody the only member before the ID of the cluster was typed, and says before that what may be lost.
func TestConfirmRecovery(t *testing.T) {
	for name, test := range map[string]struct {
		typed   string // empty: there is no terminal
		given   string
		refused string
	}{
		"typed":             {typed: "c\n"},
		"typed with spaces": {typed: "  c \r\n"},
		"another":           {typed: "d\n", refused: `"d" is not the ID of this cluster, which is c: nothing was changed`},
		"yes":               {typed: "yes\n", refused: "nothing was changed"},
		"nothing":           {typed: "\n", refused: "nothing was changed"},
		"given":             {given: "c"},
		"another given":     {typed: "c\n", given: "d", refused: "nothing was changed"},
		"no terminal":       {refused: "there is no terminal to ask on"},
	} {
		t.Run(name, func(t *testing.T) {
			var said bytes.Buffer
			node := survived("a", 5, nil)
			r, err := askNodes(t, Environment{Stdout: io.Discard, Stderr: &said, Stdin: strings.NewReader(test.typed), Interactive: test.typed != ""}, node)
			if err != nil {
				t.Fatal(err)
			}
			err = r.run(t.Context(), recoverQuorumOptions{clusterID: test.given})
			if test.refused == "" && (err != nil || !node.forced) {
				t.Errorf("it is not made the only member: %v", err)
			}
			if test.refused != "" && (fault.CodeOf(err) != fault.Refused || !strings.Contains(err.Error(), test.refused) || node.forced || node.member.Recovery != nil) {
				t.Errorf("it is not refused with %q: %v, %v", test.refused, err, node.member.Recovery)
			}
			for text, want := range map[string]bool{
				"What only the members of b, c, d, e have is lost": true, "Type the ID of the cluster (c) to go on:": test.given == "" && test.typed != "",
			} {
				if strings.Contains(said.String(), text) != want {
					t.Errorf("it says %q: %v, want %v: %s", text, !want, want, said.String())
				}
			}
		})
	}
}

// TestAbandonRecovery has every survivor give up what it has promised, and none that has begun to be the only member.
func TestAbandonRecovery(t *testing.T) {
	begun := func(m *consensusv1.MemberState) {
		promised("r")(m)
		m.Recovery.Phase = consensusv1.QuorumRecoveryPhase_QUORUM_RECOVERY_PHASE_BEGUN
	}
	two := func() []*survivingNode {
		return []*survivingNode{survived("a", 5, promised("r")), survived("b", 6, promised("s")), survived("c", 6, nil)}
	}
	for name, test := range map[string]struct {
		nodes   []*survivingNode
		dryRun  bool
		code    fault.Code
		gaveUp  map[string]string
		outcome string
	}{
		"two recoveries":        {nodes: two(), gaveUp: map[string]string{"a": "r", "b": "s"}, outcome: "abandoned"},
		"only shown":            {nodes: two(), dryRun: true},
		"one has begun":         {nodes: []*survivingNode{survived("a", 5, promised("r")), survived("b", 5, begun)}, code: fault.Refused},
		"nobody has promised":   {nodes: []*survivingNode{survived("a", 5, nil)}, code: fault.NotFound},
		"one of a former store": {nodes: []*survivingNode{survived("a", 5, generation(1, "x")), survived("b", 5, promised("r"))}, gaveUp: map[string]string{"b": "r"}, outcome: "abandoned"},
	} {
		t.Run(name, func(t *testing.T) {
			var shown bytes.Buffer
			r, err := askNodes(t, Environment{Stdout: &shown, Stderr: io.Discard}, test.nodes...)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.abandon(t.Context(), test.dryRun); (err == nil) != (test.code == 0) || err != nil && fault.CodeOf(err) != test.code {
				t.Errorf("%v, want code %d", err, test.code)
			}
			for _, node := range test.nodes {
				if got := strings.Join(node.gaveUp, " "); got != test.gaveUp[node.member.NodeId] || node.forced {
					t.Errorf("node %s gave up %q, want %q", node.member.NodeId, got, test.gaveUp[node.member.NodeId])
				}
			}
			if document := shown.String(); test.code == 0 && !strings.Contains(document, `"outcome": "`+test.outcome+`"`) || test.code != 0 && document != "" {
				t.Errorf("outcome %q: %s", test.outcome, document)
			}
		})
	}
}

// TestShowSurvivors holds what is shown before anything is done.
func TestShowSurvivors(t *testing.T) {
	r, err := askNodes(t, Environment{}, survived("a", 5, func(m *consensusv1.MemberState) { m.Term, m.CommittedIndex = 3, 4 }), survived("b", 6, nil))
	if err != nil {
		t.Fatal(err)
	}
	shown := r.document()
	one := shown.Survivors[0]
	if one.NodeID != "a" || one.MemberID != "of-a" || one.Term != 3 || one.Committed != 4 || one.LastTerm != 2 || one.LastIndex != 5 || one.State != "no quorum" {
		t.Errorf("%+v", one)
	}
	if shown.Chosen != "b" || !slices.Equal(shown.Lost, []string{"c", "d", "e"}) || shown.RecoveryID != "" || shown.Outcome != "" {
		t.Errorf("%+v", shown)
	}
}
