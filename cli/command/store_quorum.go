package command

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

const (
	// survivorTimeout is how long a node may take to say how its member is: without a quorum it tries some election times to find one.
	survivorTimeout = 15 * time.Second
	// promiseTimeout is how long a member may take to stop, and to read its log and its database.
	promiseTimeout = 5 * time.Minute
	// recoverAgain is the pause before a node that is busy with the recovery is asked again.
	recoverAgain = 500 * time.Millisecond
)

// recoverQuorumOptions are the flags of the command.
type recoverQuorumOptions struct {
	nodes     []string
	clusterID string
	abandon   bool
	dryRun    bool
}

func (c *commands) storeRecoverQuorum() *cobra.Command {
	var options recoverQuorumOptions
	cmd := &cobra.Command{
		Use:   "recover-quorum",
		Short: "Make a surviving member the only one of a store that has lost its majority for good",
		Long: `recover-quorum is for a cluster more than half of whose members of the store are lost for good. It asks every node that it can reach how its member is, and is refused while one of them
has a quorum, or while so many answer that they are a majority. The survivors stop voting. The one that has most becomes the only member, with all that its log has. What only the lost members had is
lost; the command says so, and goes on when the ID of the cluster was typed, or given with --cluster-id.

The others rejoin by themselves when they come back: what they had is put aside in the directory former of the role, and they take over what the survivor has.

Nodes are found by the context, by the dev directory, and by --node. Killed anywhere, the same command goes on. Until a member has begun to be the only one, --abandon gives the recovery up.`,
		Example: `  reeve store recover-quorum
  reeve store recover-quorum --node reeve-7c1d0a44e0b3=192.0.2.13:7443 --cluster-id CLUSTER`,
		RunE: c.onCluster(func(ctx context.Context, cluster *target.Target, _ []string) error {
			return c.recoverQuorum(ctx, cluster, options)
		}),
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&options.nodes, "node", nil, "also ask this node, ID=host:port of its own API; may be given more than once")
	flags.StringVar(&options.clusterID, "cluster-id", "", "the ID of the cluster, in place of typing it")
	flags.BoolVar(&options.dryRun, "dry-run", false, dryRunUsage)
	flags.BoolVar(&options.abandon, "abandon", false, "give up a recovery that was begun, while no member has become the only one")
	return cmd
}

// quorumRecovery is one run of the command.
type quorumRecovery struct {
	*commands
	clusterID string
	// survivors are the nodes with members of the newest generation of the store; rest are the others that were asked.
	survivors, rest []survivor
	// id is that of the recovery; empty: none was begun.
	id string
}

func (c *commands) recoverQuorum(ctx context.Context, cluster *target.Target, options recoverQuorumOptions) error {
	r := &quorumRecovery{commands: c}
	own, id, err := cluster.OwnAPIs(ctx, options.nodes)
	if err != nil {
		return err
	}
	if len(own) == 0 {
		return fault.New(fault.Usage, "no node is known whose own API could be asked", "Run the command on a surviving node with --socket or --dir, or name nodes with --node ID=host:port.")
	}
	r.ask(ctx, own)
	if r.clusterID = id; id == "" {
		for _, s := range r.survivors {
			r.clusterID = s.state.GetClusterId()
		}
	}
	err = r.sort()
	if options.abandon {
		return r.abandon(ctx, options.dryRun)
	}
	if err == nil {
		err = r.findRecovery()
	}
	if err != nil {
		return err
	}
	if err := r.check(); err != nil {
		return err
	}
	if options.dryRun {
		return r.print(r.document())
	}
	return r.run(ctx, options)
}

func (r *quorumRecovery) document() output.Survivors {
	document := output.Survivors{ClusterID: r.clusterID, RecoveryID: r.id, Lost: []string{}}
	for n, s := range r.asked() {
		one := output.NewSurvivor(s.ID, s.Address, s.state)
		switch {
		case s.err != nil:
			one = output.Survivor{NodeID: s.ID, Address: s.Address, Problem: fault.Message(s.err), State: "not reached"}
		case n >= len(r.survivors):
			one.State = "not one of the newest generation of this cluster's store"
		}
		document.Survivors = append(document.Survivors, one)
	}
	for _, node := range r.lost() {
		if !slices.ContainsFunc(r.asked(), func(s survivor) bool { return s.ID == node }) {
			document.Lost = append(document.Lost, node)
		}
	}
	if best := r.freshest(); best != nil {
		document.Chosen = best.ID
	}
	return document
}

// check refuses what could make two stores of one.
func (r *quorumRecovery) check() error {
	for _, s := range r.asked() {
		if s.state.GetQuorum() && s.state.ClusterId == r.clusterID {
			leader := s.state.GetLeaderId()
			for _, member := range s.state.GetMembers() {
				if member.GetId() == leader {
					leader = "member " + leader + " of node " + member.GetName()
				}
			}
			return fault.New(fault.Refused, "the store has a quorum, as node "+s.ID+" sees it, and "+leader+" leads it: nothing is to be recovered", "`reeve store status "+s.ID+"` shows it.")
		}
	}
	voters := r.voters()
	if len(voters) == 0 {
		_ = output.Print(r.Stderr, output.Table, r.document(), r.Now())
		return fault.New(fault.Refused, "no node that answers has a member of the store that votes", "Start a node that has one, name it with --node ID=host:port, or restore a snapshot.")
	}
	for _, s := range voters {
		all, answer := 0, 0
		for _, member := range s.state.GetMembers() {
			if member.GetLearner() {
				continue
			}
			all++
			if slices.ContainsFunc(voters, func(other survivor) bool { return other.state.MemberId == member.GetId() }) {
				answer++
			}
		}
		if answer <= all/2 || slices.ContainsFunc(r.survivors, survivor.begun) {
			continue
		}
		hint := "Wait a moment, then look what keeps them from each other: `reeve store status NODE` on each."
		if r.id != "" {
			hint = "Run the command with --abandon: no member has become the only one yet, and those that have promised to vote for nobody vote again."
		}
		return fault.New(fault.Refused, fmt.Sprintf("%d of the %d members answer, which is a majority: they elect a leader by themselves when they reach each other", answer, all), hint)
	}
	return nil
}

func (r *quorumRecovery) run(ctx context.Context, options recoverQuorumOptions) error {
	document := r.document()
	if err := output.Print(r.Stderr, output.Table, document, r.Now()); err != nil {
		return err
	}
	if !slices.ContainsFunc(r.survivors, survivor.begun) {
		lost := "Every member is reached"
		if nodes := r.lost(); len(nodes) > 0 {
			lost = "What only the members of " + strings.Join(nodes, ", ") + " have is lost"
		}
		r.say(lost + ": writes that were acknowledged in the last moment before the majority was lost may be among that. If one of them still runs somewhere with a majority, there will be two stores.")
		if err := r.confirmCluster(ctx, options.clusterID); err != nil {
			return err
		}
	}
	began := r.Now()
	if r.id == "" {
		id := make([]byte, 16)
		if _, err := rand.Read(id); err != nil {
			return err
		}
		r.id = hex.EncodeToString(id)
	}
	chosen, err := r.promise(ctx)
	if err != nil {
		return err
	}
	state, err := r.force(ctx, *chosen)
	if err != nil {
		return err
	}
	document = r.document()
	document.Chosen, document.Outcome, document.Generation, document.Seconds = chosen.ID, "recovered", state.GetGeneration(), r.Now().Sub(began).Seconds()
	if err := r.print(document); err != nil {
		return err
	}
	r.say("Nodes that come back rejoin by themselves, and what their members had is put aside there. `reeve node list` shows them. Remove each node that is lost for good: `reeve node delete NODE`.")
	return nil
}

// confirmCluster asks for the ID of the cluster.
func (r *quorumRecovery) confirmCluster(ctx context.Context, given string) error {
	if given == "" {
		if !r.Interactive {
			return fault.New(fault.Refused, "a store is made of one member, which is final, and there is no terminal to ask on", "Give --cluster-id "+r.clusterID+".")
		}
		var err error
		if given, err = r.commands.ask(ctx, "Type the ID of the cluster ("+r.clusterID+") to go on:"); err != nil {
			return err
		}
	}
	if given != r.clusterID {
		return fault.New(fault.Refused, fmt.Sprintf("%q is not the ID of this cluster, which is %s: nothing was changed", given, r.clusterID), "")
	}
	return nil
}

// promise has all survivors stop voting, and chooses the one that has most then.
func (r *quorumRecovery) promise(ctx context.Context) (*survivor, error) {
	if n := slices.IndexFunc(r.survivors, survivor.begun); n >= 0 {
		return &r.survivors[n], nil
	}
	said := r.freshest()
	if err := r.promiseAll(ctx, ""); err != nil {
		return nil, err
	}
	best := r.freshest()
	if best == nil {
		_ = output.Print(r.Stderr, output.Table, r.document(), r.Now())
		return nil, fault.New(fault.Refused, "no member that answers can become the only one: the files of each are damaged",
			"Run `reeve store recover-quorum --abandon`. Then start a node whose member is whole, or restore a snapshot (`reeved restore`).")
	}
	// Whoever has typed the ID has read what another member has.
	for _, now := range r.survivors {
		if said == nil || now.ID != said.ID || !now.state.Unusable || now.compare(*best) <= 0 {
			continue
		}
		return nil, fault.New(fault.Refused, fmt.Sprintf("the member of node %s has more than that of node %s, and cannot become the only one: %s", now.ID, best.ID, now.state.Damage),
			"Nothing is final yet. Run the same command again to go on with node "+best.ID+" and lose what only node "+now.ID+" has, or with --abandon to give it up.")
	}
	for _, s := range r.survivors {
		chosen := s.promised().GetNodeId()
		if chosen == "" || chosen == best.ID {
			continue
		}
		hint := "Run `reeve store recover-quorum --abandon`, and this command again: it chooses anew."
		if !slices.ContainsFunc(r.survivors, func(other survivor) bool { return other.ID == chosen }) {
			hint = "Bring node " + chosen + " back: its member may have become the only one. Only if it is lost for good: " + hint
		}
		return nil, fault.New(fault.Refused, fmt.Sprintf("the recovery %s has chosen the member of node %s, but the freshest that answers is that of node %s", r.id, chosen, best.ID), hint)
	}
	if best.state.Damage != "" {
		r.say("The data of the member of node " + best.ID + " may be damaged, and every other node would take it over: " + best.state.Damage)
	}
	r.say(fmt.Sprintf("%d survivors have stopped voting. The freshest that can be used is node %s, whose log ends with entry %d of term %d.", len(r.voters()), best.ID, best.state.LastIndex, best.state.LastTerm))
	return best, r.promiseAll(ctx, best.ID)
}

func (r *quorumRecovery) promiseAll(ctx context.Context, chosen string) error {
	for n, s := range r.survivors {
		if !s.state.GetVoter() {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, promiseTimeout)
		answer, err := s.API.PromiseRecovery(bounded, &nodev1.PromiseRecoveryRequest{RecoveryId: r.id, NodeId: chosen})
		cancel()
		if err != nil {
			return fault.FromRPC(err, "node "+s.ID+" does not promise the recovery "+r.id, "Run the same command again to go on, or with --abandon to give it up.")
		}
		r.survivors[n].state = answer.GetMember()
	}
	return nil
}

// force makes the chosen member the only one, again and again while the node says that it is busy with it.
func (r *quorumRecovery) force(ctx context.Context, chosen survivor) (*consensusv1.MemberState, error) {
	r.say("The member of node " + chosen.ID + " becomes the only one. Waiting for the first write that the store acknowledges …")
	for said := ""; ; {
		answer, err := chosen.API.RecoverQuorum(ctx, &nodev1.RecoverQuorumRequest{RecoveryId: r.id})
		if err == nil {
			return answer.GetMember(), nil
		}
		if status.Code(err) != codes.Unavailable || ctx.Err() != nil {
			return nil, fault.FromRPC(err, "the member of node "+chosen.ID+" has not become the only one yet", "Run the same command again: it goes on.")
		}
		if text := fault.Message(err); text != said {
			said = text
			r.say(text)
		}
		select {
		case <-ctx.Done():
		case <-time.After(recoverAgain):
		}
	}
}

// abandon gives up what the reached survivors have promised.
func (r *quorumRecovery) abandon(ctx context.Context, dryRun bool) error {
	asked := r.asked()
	if n := slices.IndexFunc(asked, survivor.begun); n >= 0 {
		return fault.New(fault.Refused, "the member of node "+asked[n].ID+" is becoming the only one by the recovery "+asked[n].promised().Id+": there is no way back", "Run the command without --abandon: it goes on.")
	}
	if dryRun {
		return r.print(r.document())
	}
	given := 0
	for _, s := range asked {
		promised := s.promised()
		if promised == nil {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, promiseTimeout)
		_, err := s.API.AbandonRecovery(bounded, &nodev1.AbandonRecoveryRequest{RecoveryId: promised.Id})
		cancel()
		if err != nil {
			return fault.FromRPC(err, "node "+s.ID+" does not give up the recovery "+promised.Id, "Run the same command again.")
		}
		given++
	}
	if given == 0 {
		return fault.New(fault.NotFound, "no node that answers has promised a recovery", "`reeve store recover-quorum` begins one.")
	}
	document := r.document()
	document.Outcome = "abandoned"
	return r.print(document)
}
