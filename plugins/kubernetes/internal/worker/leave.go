package worker

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/plugins/kubernetes/internal/machine"
	"github.com/reeveproject/reeve/plugins/kubernetes/internal/podnet"
	"github.com/reeveproject/reeve/sdk/role"
)

const (
	// stopGrace is how long the role may take to stop: pods go to other nodes first, which takes as long as they have for their end, 30 s if they say nothing.
	stopGrace = 2 * time.Minute
	// drainTime is how much of it pods have to go away.
	drainTime = 75 * time.Second
	// podTime is how long the processes of pods that are still there may take to end when they are asked to: as long as pods have that say nothing else, or little where they had the time of the drain.
	podTime, drainedPodTime = 30 * time.Second, 10 * time.Second
	// leaveTime is how much of stopGrace everything may take.
	leaveTime = stopGrace - 5*time.Second
	// lookEnded is how often the role checks whether the processes have ended.
	lookEnded = 100 * time.Millisecond
	// lookDrained is how often the role checks whether the pods are gone.
	lookDrained = time.Second
	// killTime is how long killed processes may take to be gone, and cleanTime what ends all pods of a node that goes on.
	killTime, cleanTime = 10 * time.Second, time.Minute
)

// leaves reports whether the role is stopped for longer: it is taken from the node, or the node stops. Otherwise it starts again at once, and pods live on.
func (w *work) leaves() bool {
	reason := w.host.StopReason()
	return reason == role.StopRemoved || reason == role.StopNode
}

// cordonMark is a file that says that the role has cordoned the node. What somebody else has cordoned stays so.
func (c *nodeClient) cordonMark() string { return filepath.Join(c.at.data, "cordoned") }

func (c *nodeClient) cordonedByUs() bool {
	_, err := os.Stat(c.cordonMark())
	return err == nil
}

// liftCordon lifts a cordon that is the role's own, once, and forgets about one that somebody else has lifted: the next one is not the role's.
func (c *nodeClient) liftCordon(ctx context.Context, node *kubeNode, done *bool) error {
	if *done {
		return nil
	}
	if node.Spec.Unschedulable && c.cordonedByUs() {
		if err := c.cordon(ctx, false); err != nil {
			return err
		}
	}
	*done = true
	if err := os.Remove(c.cordonMark()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// drain has the pods of the node go elsewhere, as far as their disruption budgets and the time allow.
func (c *nodeClient) drain(log hclog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	node, err := c.node(ctx)
	if err == nil && !node.Spec.Unschedulable {
		if err := os.WriteFile(c.cordonMark(), nil, 0o600); err != nil {
			log.Warn("the role cannot record that it has cordoned the node", "error", err)
		}
		err = c.cordon(ctx, true)
		if refused := (*answerError)(nil); errors.As(err, &refused) {
			_ = os.Remove(c.cordonMark()) // it was not cordoned
		}
	}
	if err != nil {
		// No API server, or no such node any more: nobody is asked where the pods could go.
		log.Warn("the node is not drained: it cannot be cordoned", "error", err)
		return
	}
	log.Info("draining the node", "timeout", drainTime)
	asked := make(map[string]bool)
	for {
		pods, err := c.pods(ctx)
		left := 0
		for n := range pods {
			if !pods[n].moves() {
				continue
			}
			left++
			name := pods[n].Metadata.Namespace + "/" + pods[n].Metadata.Name
			if asked[name] {
				continue
			}
			switch problem, refused := c.evict(ctx, &pods[n]), (*answerError)(nil); {
			case problem == nil:
				asked[name] = true
			case errors.As(problem, &refused) && refused.status == http.StatusTooManyRequests:
				log.Debug("a pod may not be disrupted yet", "pod", name, "reason", problem)
			default:
				log.Warn("a pod cannot be evicted", "pod", name, "error", problem)
			}
		}
		if err == nil && left == 0 {
			log.Info("the node is drained")
			return
		}
		if !sleep(ctx, lookDrained) {
			log.Warn("the node is not drained in time; the pods that are left end with the role", "pods", left, "error", err)
			return
		}
	}
}

// leaving is a context for what the role does when it is stopped for longer, as long as it has time.
func (w *work) leaving() (context.Context, context.CancelFunc) {
	began, ok := w.asked.Get()
	if !ok {
		began = time.Now()
	}
	return context.WithDeadline(context.Background(), began.Add(leaveTime))
}

// endPods ends what is still there of pods: their processes are asked to end, and then killed. kubelet does not run any more, and would not start them again. Those that hold containers are not asked: they
// would take the containers with them at once.
func (w *work) endPods(ctx context.Context, groups *machine.Cgroups) error {
	patience := podTime
	if w.host.StopReason() == role.StopRemoved {
		patience = drainedPodTime
	}
	err := groups.Terminate(shims)
	pids, problem := groups.Processes(shims)
	err = errors.Join(err, problem)
	for asked := time.Now(); err == nil && len(pids) > 0 && time.Since(asked) < patience; pids, err = groups.Processes(shims) {
		if !sleep(ctx, lookEnded) {
			break
		}
	}
	killing, cancel := context.WithTimeout(ctx, killTime)
	defer cancel()
	return errors.Join(err, groups.Kill(killing))
}

// leave takes away what the role has put on the machine, if it is stopped for longer.
func (w *work) leave() {
	if !w.leaves() {
		return
	}
	if _, err := os.Stat(w.at.state); errors.Is(err, fs.ErrNotExist) {
		return // nothing was made since the machine started
	}
	w.host.SetValue(valuePodCIDRs, "")
	ctx, cancel := w.leaving()
	defer cancel()
	groups, err := machine.OpenCgroups(w.at.node)
	if err == nil {
		err = w.endPods(ctx, groups)
	}
	// What takes no time comes first: a process that cannot end, such as one that waits for a disk of another machine, holds its mounts and its group.
	down := podnet.Down(ctx, podnet.Config{NodeID: w.at.node, Directory: w.at.ipam(), ConfDir: w.at.cni(), Log: w.host.Logger().Named("pod network")})
	if taken := (*podnet.TakenError)(nil); errors.As(down, &taken) {
		w.host.Logger().Info("the pod network and the services on this machine are another node's, and stay", "interface", taken.Name, "alias", taken.Alias)
	} else {
		err = errors.Join(err, down, w.dropTables(ctx))
	}
	err = errors.Join(err,
		machine.Sysctls{File: w.at.sysctls()}.Restore(),
		removeLinks("/var/log/containers", w.at.logs()),
	)
	unmounted := machine.Unmount(ctx, w.at.state, w.at.data)
	if detached := (*machine.DetachedError)(nil); errors.As(unmounted, &detached) {
		// The kernel unmounts them when nobody uses them any more: there is nothing left to do.
		w.host.Logger().Warn("mounts of pods were in use, and were detached", "error", unmounted)
		unmounted = nil
	}
	err = errors.Join(err, unmounted)
	if groups != nil {
		err = errors.Join(err, groups.Remove(ctx))
	}
	if err != nil {
		// The state stays, by which the next instance knows that there is something to take away.
		w.host.Logger().Error("not everything of pods could be taken from the machine", "error", err)
		return
	}
	err = os.RemoveAll(w.at.state)
	_ = os.Remove(filepath.Dir(w.at.state)) // another node of this machine may have its own there
	if err != nil {
		w.host.Logger().Error("not everything of pods could be taken from the machine", "error", err)
		return
	}
	w.host.Logger().Info("the machine is as it was before it ran pods", "reason", w.host.StopReason())
}

// dropTables removes the tables of kube-proxy, which leaves them when it ends so that services go on while it is away.
func (w *work) dropTables(ctx context.Context) error {
	var problems []error
	for _, family := range []string{"ip", "ip6"} {
		// To add a table that is there does nothing: so none has to be looked for.
		problems = append(problems, w.command(ctx, "nft", "add table "+family+" kube-proxy; delete table "+family+" kube-proxy"))
	}
	return errors.Join(problems...)
}

// removeLinks removes the links in a directory that lead to below another one, and the directory if it is empty then.
func removeLinks(from, to string) error {
	entries, err := os.ReadDir(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, entry := range entries {
		link := filepath.Join(from, entry.Name())
		if target, problem := os.Readlink(link); problem == nil && strings.HasPrefix(target, to+string(filepath.Separator)) {
			err = errors.Join(err, os.Remove(link))
		}
	}
	_ = os.Remove(from)
	return err
}
