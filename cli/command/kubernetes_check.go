package command

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	kubernetesv1 "github.com/reeveproject/reeve/proto/reeve/kubernetes/v1"
)

func (c *commands) kubernetesCheck() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check [NODE...]",
		Short: "Say what the machines of nodes lack for running pods",
		Long: `check says what the machines of nodes lack for the role ` + workerRole + `: the role looks anew, where it runs, also while it is Blocked by it. It fails if something is missing, or if
that cannot be known, as of a node that does not have the role.

` + nodeArgument + ` Without any: all nodes that have the role.`,
		RunE: c.onCluster(func(ctx context.Context, cluster *target.Target, given []string) error {
			return c.checkWorkers(ctx, cluster, given)
		}),
	}
	cmd.ValidArgsFunction = completer(c.nodeNames).asCobra
	return cmd
}

func (c *commands) checkWorkers(ctx context.Context, cluster *target.Target, names []string) error {
	all, err := workers(ctx, cluster, names)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		all = slices.DeleteFunc(all, func(w worker) bool { return !w.assigned })
		if len(all) == 0 {
			return noWorker()
		}
	}
	document := output.KubernetesCheck{Nodes: make([]output.KubernetesCheckNode, len(all))}
	var asked sync.WaitGroup
	for i, w := range all {
		node := &document.Nodes[i]
		*node = output.KubernetesCheckNode{NodeID: w.nodeID, HasRole: w.assigned, State: output.State(w.instance.GetState())}
		if reason := w.silent(); reason != "" {
			w.tell(node, reason)
			continue
		}
		client, err := w.client(ctx, cluster)
		if err != nil {
			w.tell(node, missing("", err).Reason)
			continue
		}
		asked.Go(func() { w.check(ctx, client, node) })
	}
	asked.Wait()
	if err := c.print(document); err != nil {
		return err
	}
	return verdict(document)
}

// check asks the role.
func (w worker) check(ctx context.Context, client kubernetesv1.WorkerServiceClient, node *output.KubernetesCheckNode) {
	bounded, cancel := context.WithTimeout(ctx, target.CallTimeout)
	defer cancel()
	response, err := client.Check(bounded, &kubernetesv1.CheckRequest{})
	if err != nil {
		w.tell(node, "the role does not answer: "+fault.Message(err))
		return
	}
	node.Known, node.Missing = true, response.GetMissing()
	if w.idle() != "" {
		node.Reason = w.instance.GetReason()
	}
}

// tell says what is known where the role cannot be asked: of one that is Blocked, what the node has reported.
func (w worker) tell(node *output.KubernetesCheckNode, unasked string) {
	node.Reason = unasked
	if reason := w.instance.GetReason(); w.assigned && w.instance.GetState() == hostv1.InstanceState_INSTANCE_STATE_BLOCKED && reason != "" {
		node.Known, node.Missing = true, []*kubernetesv1.Missing{{What: reason}}
	}
}

// verdict is the fault if something is missing, or not known.
func verdict(document output.KubernetesCheck) error {
	var lack, unknown, without []string
	for _, node := range document.Nodes {
		switch {
		case !node.HasRole:
			without = append(without, node.NodeID)
		case !node.Known:
			unknown = append(unknown, node.NodeID)
		case len(node.Missing) > 0:
			lack = append(lack, node.NodeID)
		}
	}
	switch {
	case len(lack) > 0:
		return fault.New(fault.Failed, "something is missing for "+workerRole+" on "+strings.Join(lack, ", "), "Do what is advised above; the role looks again by itself.")
	case len(without) > 0:
		return fault.New(fault.Refused, "only a node that has the role can say what it lacks, and these nodes do not have it: "+strings.Join(without, ", "), giveWorker(without[0])+" gives it; where something is missing it is Blocked, and changes nothing.")
	case len(unknown) > 0:
		return fault.New(fault.Unreachable, "what is missing is not known of "+strings.Join(unknown, ", "), "Run `reeve status "+unknown[0]+"` to see how the node is.")
	}
	return nil
}
