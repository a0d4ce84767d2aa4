package command

import (
	"context"
	"slices"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	kubernetesv1 "github.com/reeveproject/reeve/proto/reeve/kubernetes/v1"
)

// The role that runs pods, and the name of what it serves to operators.
const (
	workerRole     = "kubernetes-worker"
	workerEndpoint = "worker"
)

// giveWorker is how a node comes to have the role.
func giveWorker(nodeID string) string {
	return "`reeve node role add " + nodeID + " " + workerRole + "`"
}

// worker is a node as far as its role kubernetes-worker goes.
type worker struct {
	nodeID string
	// assigned says that the role is assigned to the node.
	assigned, healthy bool
	// instance is what the node last said of it; nil: nothing.
	instance *clusterv1.InstanceStatus
	// address is where it serves; empty: nowhere.
	address string
}

func newWorker(node *clusterv1.Node) worker {
	w := worker{nodeID: node.GetRecord().GetId(), healthy: node.GetHealthy()}
	for _, assignment := range node.GetRecord().GetRoles() {
		w.assigned = w.assigned || assignment.GetRole() == workerRole && !assignment.GetLeaving()
	}
	for _, instance := range node.GetStatus().GetInstances() {
		if instance.GetRole() != workerRole {
			continue
		}
		w.instance = instance
		for _, endpoint := range instance.GetEndpoints() {
			if endpoint.GetName() == workerEndpoint {
				w.address = endpoint.GetAddress()
			}
		}
	}
	return w
}

// state is how the role is on the node, with its reason.
func (w worker) state() string {
	text := "the role is " + output.State(w.instance.GetState())
	if reason := w.instance.GetReason(); reason != "" {
		text += ": " + reason
	}
	return text
}

// silent says why the role cannot be asked; empty: it can.
func (w worker) silent() string {
	switch {
	case !w.assigned:
		return "it does not have the role " + workerRole + ": " + giveWorker(w.nodeID) + " gives it"
	case !w.healthy:
		return "its heartbeat is not fresh"
	case w.instance == nil:
		return "it has not told yet how the role is"
	case w.address == "":
		return w.state() + ", and does not serve"
	}
	return ""
}

// idle says why no pods run there, and no images are loaded unless somebody names the node; empty: they do.
func (w worker) idle() string {
	if silent := w.silent(); silent != "" {
		return silent
	}
	switch w.instance.GetState() {
	case hostv1.InstanceState_INSTANCE_STATE_READY, hostv1.InstanceState_INSTANCE_STATE_DEGRADED:
		return ""
	default:
		return w.state()
	}
}

// client calls the role.
func (w worker) client(ctx context.Context, cluster *target.Target) (kubernetesv1.WorkerServiceClient, error) {
	conn, err := cluster.RoleOn(ctx, workerRole, w.nodeID, w.address)
	if err != nil {
		return nil, err
	}
	return kubernetesv1.NewWorkerServiceClient(conn), nil
}

// workers are the nodes with some names, each once, or all members of the cluster where none is named.
func workers(ctx context.Context, cluster *target.Target, names []string) ([]worker, error) {
	nodes, err := cluster.ListNodes(ctx)
	if err != nil {
		return nil, err
	}
	var all []worker
	if len(names) == 0 {
		for _, node := range nodes {
			switch node.GetRecord().GetState() {
			case clusterv1.NodeState_NODE_STATE_STANDBY, clusterv1.NodeState_NODE_STATE_UP, clusterv1.NodeState_NODE_STATE_DECOMMISSIONING:
				all = append(all, newWorker(node))
			}
		}
		return all, nil
	}
	for _, name := range names {
		found, err := cluster.FindNode(ctx, name)
		if err != nil {
			return nil, err
		}
		for _, node := range nodes {
			if id := node.GetRecord().GetId(); id == found.ID && !slices.ContainsFunc(all, func(w worker) bool { return w.nodeID == id }) {
				all = append(all, newWorker(node))
			}
		}
	}
	return all, nil
}

// noWorker is the fault where no node has the role.
func noWorker() error {
	return fault.New(fault.NotFound, "no node has the role "+workerRole, giveWorker("NODE")+" gives it to one; `reeve node list` shows the nodes.")
}
